// Refines the depth of one picture with an aoti bundle, as a robot's C++ program would. It uses no
// TorchScript.
//
//   refine_pt2 BUNDLE RGB.ppm ZOE.pgm REFINED.pgm
//
// The bundle is a package of AOTInductor, made for the CPU or for a GPU; it knows which.
// A bundle with confidence also gives REFINED.pgm.confidence.pgm, the spread: value / 10000. At 90%
// of the pixels the truth lies within depth * exp(+-spread).
// The loader runs the code in a bundle without verifying it: verify a bundle once with
// `zoerefine show BUNDLE`, when it is copied to the robot. That also says whether the robot's
// processor and torch are right.

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

#include "netpbm.h"

using Loader = torch::inductor::AOTIModelPackageLoader;

// Loads a bundle. Its errors name the file.
std::unique_ptr<Loader> load(const std::string& bundle) {
  try {
    return std::make_unique<Loader>(bundle);
  } catch (const c10::Error& error) {
    throw std::runtime_error(bundle + ": " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw std::runtime_error(bundle + ": " + error.what());
  }
}

void run(const std::string& bundle, const std::string& rgb_path, const std::string& zoe_path,
         const std::string& out) {
  Frame frame(rgb_path, zoe_path);
  torch::InferenceMode no_gradients;
  const auto refiner = load(bundle);
  const torch::Device device(refiner->get_metadata().at("AOTI_DEVICE_KEY"));
  // Units, sizes and precision are handled inside the bundle.
  write_outputs(out, refiner->run({frame.rgb_u8().to(device), frame.zoe_u16().to(device)}));
}

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: refine_pt2 BUNDLE RGB.ppm ZOE.pgm REFINED.pgm\n";
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3], argv[4]);
    return 0;
  } catch (const c10::Error& error) {
    std::cerr << "error: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
  }
  return 2;
}
