// Refines the depth of one picture with a torchscript or tensorrt bundle, as a robot's C++ program
// would.
//
//   refine BUNDLE RGB.ppm ZOE.pgm REFINED.pgm [DEVICE [RUNTIME]]
//
// DEVICE is where the bundle was built to run: cpu (the default), cuda or cuda:1. A tensorrt bundle
// needs RUNTIME, the path of Torch-TensorRT's libtorchtrt_runtime.so. It is loaded here and not
// linked, so that this program also builds and runs without TensorRT. docs/engines.md says which
// libraries it must find.
//
// Pictures are binary PPM (8 bits) and PGM (16 bits, metres * 256), which need no library.
// A bundle with confidence also gives REFINED.pgm.confidence.pgm, the spread: value / 10000. At 90%
// of the pixels the truth lies within depth * exp(+-spread).
// torch::jit::load runs the code in a bundle without verifying it: verify a bundle once with
// `zoerefine show BUNDLE`, when it is copied to the robot.

#include <dlfcn.h>
#include <torch/cuda.h>
#include <torch/script.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

struct Picture {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> bytes;
};

// Reads a binary netpbm file of a given kind ("P5 65535", "P6 255"). Its header may hold comments.
Picture read_netpbm(const std::string& path, const std::string& kind, int64_t bytes_per_pixel) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  const auto word = [&file] {
    std::string next, rest;
    while (file >> next && next[0] == '#') std::getline(file, rest);
    return next;
  };
  const std::string magic = word(), width = word(), height = word(), max_value = word();
  if (magic + " " + max_value != kind) throw std::runtime_error(path + " is not of kind " + kind);
  file.get();  // one white space ends the header

  Picture picture{std::stoll(width), std::stoll(height), {}};
  picture.bytes.resize(picture.width * picture.height * bytes_per_pixel);
  if (!file.read(reinterpret_cast<char*>(picture.bytes.data()), picture.bytes.size()))
    throw std::runtime_error(path + " is cut short");
  return picture;
}

// Swaps the bytes of 16-bit values: netpbm stores them as big endian, this machine as little.
void swap_bytes(uint8_t* bytes, size_t count) {
  for (size_t i = 0; i + 1 < count; i += 2) std::swap(bytes[i], bytes[i + 1]);
}

void write_pgm(const std::string& path, torch::Tensor depth) {
  std::vector<uint8_t> bytes(depth.numel() * 2);
  std::memcpy(bytes.data(), depth.data_ptr(), bytes.size());
  swap_bytes(bytes.data(), bytes.size());
  std::ofstream file(path, std::ios::binary);
  file << "P5\n" << depth.size(1) << " " << depth.size(0) << "\n65535\n";
  file.write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!file) throw std::runtime_error(path + " cannot be written");
}

// The device of a name. An unknown one and a GPU that is missing are errors in one line.
torch::Device device_of(const std::string& name) {
  if (name != "cpu" && name.rfind("cuda", 0) != 0)
    throw std::runtime_error("unknown device " + name + ": cpu, cuda or cuda:1");
  if (name != "cpu" && !torch::cuda::is_available())
    throw std::runtime_error(name + ": this machine, or the libtorch in use, has no GPU");
  return torch::Device(name);
}

// Loads the classes and operators that a TensorRT engine in TorchScript needs.
void load_runtime(const std::string& path) {
  if (!dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) throw std::runtime_error(dlerror());
}

int run(const std::string& bundle, const std::string& rgb_path, const std::string& zoe_path,
        const std::string& out, const std::string& device_name, const std::string& runtime) {
  const torch::Device device = device_of(device_name);
  if (!runtime.empty()) load_runtime(runtime);
  Picture rgb = read_netpbm(rgb_path, "P6 255", 3);
  Picture zoe = read_netpbm(zoe_path, "P5 65535", 2);
  if (rgb.width != zoe.width || rgb.height != zoe.height)
    throw std::runtime_error(rgb_path + " and " + zoe_path + " differ in size");
  swap_bytes(zoe.bytes.data(), zoe.bytes.size());
  const auto rgb_u8 = torch::from_blob(rgb.bytes.data(), {1, rgb.height, rgb.width, 3}, torch::kUInt8);
  const auto zoe_u16 = torch::from_blob(zoe.bytes.data(), {1, zoe.height, zoe.width}, torch::kUInt16);

  // Units, sizes and precision are handled inside the bundle.
  torch::InferenceMode no_gradients;
  torch::jit::Module refiner = torch::jit::load(bundle, device);
  const std::vector<torch::Tensor> outputs =  // uint16 [1, H, W] each
      refiner.forward({rgb_u8.to(device), zoe_u16.to(device)}).toTensorVector();

  write_pgm(out, outputs[0][0].cpu().contiguous());
  if (outputs.size() > 1) write_pgm(out + ".confidence.pgm", outputs[1][0].cpu().contiguous());
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 5 || argc > 7) {
    std::cerr << "usage: refine BUNDLE RGB.ppm ZOE.pgm REFINED.pgm [DEVICE [RUNTIME]]\n";
    return 2;
  }
  try {
    return run(argv[1], argv[2], argv[3], argv[4], argc > 5 ? argv[5] : "cpu",
               argc > 6 ? argv[6] : "");
  } catch (const c10::Error& error) {
    std::cerr << "error: " << argv[1] << ": " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
  }
  return 2;
}
