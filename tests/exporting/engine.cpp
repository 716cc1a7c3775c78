// A substitute for Torch-TensorRT's runtime: the class and the operator that its TorchScript files
// name, with its rules for serialized engines. It returns twice the depth.
#include <ATen/ATen.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <string>
#include <vector>

namespace {

const std::string ABI = "9";

struct Engine : torch::CustomClassHolder {
  // {ABI, largest batch}
  std::vector<std::string> info;
  explicit Engine(std::vector<std::string> given) : info(std::move(given)) {}
};

c10::intrusive_ptr<Engine> unpack(std::vector<std::string> info) {
  TORCH_CHECK(
      info.at(0) == ABI, "Program to be deserialized targets a different Torch-TensorRT ABI Version (",
      info.at(0), ") than the Torch-TensorRT Runtime ABI Version (", ABI, ")");
  return c10::make_intrusive<Engine>(std::move(info));
}

std::vector<at::Tensor> execute(
    std::vector<at::Tensor> inputs, const c10::intrusive_ptr<Engine>& engine) {
  const auto largest = std::stoll(engine->info.at(1));
  TORCH_CHECK(inputs.at(0).size(0) <= largest, "Error while setting the input shape");
  TORCH_CHECK(
      inputs.at(0).scalar_type() == at::kFloat, "Expected input tensors to have type Float");
  return {inputs.at(1).mul(2)};
}

}  // namespace

TORCH_LIBRARY(tensorrt, m) {
  m.class_<Engine>("Engine")
      .def(torch::init<std::vector<std::string>>())
      .def_pickle(
          [](const c10::intrusive_ptr<Engine>& self) { return self->info; },
          [](std::vector<std::string> info) { return unpack(std::move(info)); });
  m.def("execute_engine(Tensor[] input_tensors, __torch__.torch.classes.tensorrt.Engine engine) -> Tensor[]");
  m.def("ABI_VERSION", []() -> std::string { return ABI; });
}

TORCH_LIBRARY_IMPL(tensorrt, CompositeExplicitAutograd, m) {
  m.impl("execute_engine", &execute);
}
