// Refines the depth of one picture with an aoti or tensorrt-pt2 bundle, as a robot's C++ program
// would. It uses no TorchScript.
//
//   refine_pt2 BUNDLE RGB.ppm ZOE.pgm REFINED.pgm [RUNTIME]
//
// The bundle is a package of AOTInductor, made for the CPU or for a GPU; it knows which. A
// tensorrt-pt2 bundle needs RUNTIME, as refine.cpp has it.
// A bundle with confidence also gives REFINED.pgm.confidence.pgm, the spread: value / 10000. At 90%
// of the pixels the truth lies within depth * exp(+-spread).
// A bundle is a program: it is verified, and must be on the user's list of trusted bundles.
// `zoerefine show BUNDLE` says whether the robot's processor and torch are right.

#include <sys/mman.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

#include "bundle.h"
#include "netpbm.h"

using Loader = torch::inductor::AOTIModelPackageLoader;

// A file in memory alone, with a path: the loader takes no bytes.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& bytes) : descriptor(memfd_create("bundle", MFD_CLOEXEC)) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t count = write(descriptor, bytes.data() + done, bytes.size() - done);
      if (count <= 0) throw std::runtime_error(std::string("no file in memory: ") + strerror(errno));
      done += count;
    }
  }
  ~MemoryFile() { close(descriptor); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor); }

 private:
  int descriptor;
};

// Verifies a bundle and loads the same bytes. Its errors name the file.
std::unique_ptr<Loader> load(const std::string& bundle) {
  const MemoryFile verified(read_bundle(bundle));
  try {
    return std::make_unique<Loader>(verified.path());
  } catch (const c10::Error& error) {
    throw std::runtime_error(bundle + ": " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw std::runtime_error(bundle + ": " + error.what());
  }
}

void run(const std::string& bundle, const std::string& rgb_path, const std::string& zoe_path,
         const std::string& out, const std::string& runtime) {
  load_runtime(runtime);
  Frame frame(rgb_path, zoe_path);
  torch::InferenceMode no_gradients;
  const auto refiner = load(bundle);
  const torch::Device device(refiner->get_metadata().at("AOTI_DEVICE_KEY"));
  // Units, sizes and precision are handled inside the bundle.
  write_outputs(out, refiner->run({frame.rgb_u8().to(device), frame.zoe_u16().to(device)}));
}

int main(int argc, char** argv) {
  if (argc < 5 || argc > 6) {
    std::cerr << "usage: refine_pt2 BUNDLE RGB.ppm ZOE.pgm REFINED.pgm [RUNTIME]\n";
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3], argv[4], argc > 5 ? argv[5] : "");
    return 0;
  } catch (const c10::Error& error) {
    std::cerr << "error: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
  }
  return 2;
}
