// Refines the depth of one picture with a torchscript or tensorrt bundle, as a robot's C++ program
// would. refine_pt2.cpp does it with an aoti bundle.
//
//   refine BUNDLE RGB.ppm ZOE.pgm REFINED.pgm [DEVICE [RUNTIME]]
//
// DEVICE is where the bundle was built to run: cpu (the default), cuda or cuda:1. A tensorrt bundle
// needs RUNTIME, the path of Torch-TensorRT's libtorchtrt_runtime.so. It is loaded here and not
// linked, so that this program also builds and runs without TensorRT. docs/engines.md says which
// libraries it must find.
//
// A bundle with confidence also gives REFINED.pgm.confidence.pgm, the spread: value / 10000. At 90%
// of the pixels the truth lies within depth * exp(+-spread).
// A bundle is a program: it is verified, and must be on the user's list of trusted bundles.

#include <torch/cuda.h>
#include <torch/script.h>

#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bundle.h"
#include "netpbm.h"

// The device of a name. An unknown one and a GPU that is missing are errors in one line.
torch::Device device_of(const std::string& name) {
  if (name != "cpu" && name.rfind("cuda", 0) != 0)
    throw std::runtime_error("unknown device " + name + ": cpu, cuda or cuda:1");
  if (name != "cpu" && !torch::cuda::is_available())
    throw std::runtime_error(name + ": this machine, or the libtorch in use, has no GPU");
  return torch::Device(name);
}

int run(const std::string& bundle, const std::string& rgb_path, const std::string& zoe_path,
        const std::string& out, const std::string& device_name, const std::string& runtime) {
  const torch::Device device = device_of(device_name);
  load_runtime(runtime);
  Frame frame(rgb_path, zoe_path);

  // Units, sizes and precision are handled inside the bundle.
  torch::InferenceMode no_gradients;
  std::istringstream verified(read_bundle(bundle));
  torch::jit::Module refiner = torch::jit::load(verified, device);
  const std::vector<torch::Tensor> outputs =  // uint16 [1, H, W] each
      refiner.forward({frame.rgb_u8().to(device), frame.zoe_u16().to(device)}).toTensorVector();

  write_outputs(out, outputs);
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
