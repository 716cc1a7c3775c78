// A substitute for Torch-TensorRT's runtime: the class and the operator that its TorchScript files
// name, with its rules for serialized engines, and its way to put an engine into a module. It returns
// twice the depth and, as a second output, a quarter of it.
#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <string>
#include <vector>

namespace {

const std::string ABI = "9";

struct Engine : torch::CustomClassHolder {
  // {ABI, largest batch, number of outputs}
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
  const auto& depth = inputs.at(1);
  if (engine->info.at(2) == "1") return {depth.mul(2)};
  return {depth.mul(2), depth.mul(0.25)};
}

// A module with this engine. As in Torch-TensorRT, the qualified name of its method is "forward",
// which does not begin with the name of its class.
c10::IValue embed(std::vector<std::string> info) {
  using namespace torch::jit;
  const auto outputs = std::stoull(info.at(2));
  Module module("tensorrt_engine_mod_0x1");
  const auto type = c10::getCustomClassType<c10::intrusive_ptr<Engine>>();
  auto engine = c10::make_intrusive<Engine>(std::move(info));
  module.register_attribute("engine", type, c10::IValue(std::move(engine)));
  auto graph = std::make_shared<Graph>();
  auto* self = graph->addInput("self_1")->setType(module.type());
  auto* rgb01 = graph->addInput("input_0")->setType(c10::TensorType::get());
  auto* zoe_m = graph->addInput("input_1")->setType(c10::TensorType::get());
  auto* held = graph->insertNode(graph->createGetAttr(self, "engine"))->output();
  auto* inputs = graph->insertNode(graph->createList(c10::TensorType::get(), {rgb01, zoe_m}));
  const auto symbol = c10::Symbol::fromQualString("tensorrt::execute_engine");
  auto* execute = graph->insertNode(graph->create(symbol, {inputs->output(), held}, 1));
  execute->output()->setType(c10::ListType::ofTensors());
  auto* unpacked = graph->insertNode(graph->createListUnpack(execute->output(), outputs));
  const auto one = outputs == 1;
  graph->registerOutput(
      one ? unpacked->output()
          : graph->insertNode(graph->createTuple(unpacked->outputs()))->output());
  module.type()->addMethod(module._ivalue()->compilation_unit()->create_function("forward", graph));
  return module._ivalue();
}

}  // namespace

TORCH_LIBRARY(tensorrt, m) {
  m.class_<Engine>("Engine")
      .def(torch::init<std::vector<std::string>>())
      .def_pickle(
          [](const c10::intrusive_ptr<Engine>& self) { return self->info; },
          [](std::vector<std::string> info) { return unpack(std::move(info)); });
  m.def("execute_engine(Tensor[] input_tensors, __torch__.torch.classes.tensorrt.Engine engine) -> Tensor[]");
  m.def("embed(str[] info) -> Any", &embed);
  m.def("ABI_VERSION", []() -> std::string { return ABI; });
}

TORCH_LIBRARY_IMPL(tensorrt, CompositeExplicitAutograd, m) {
  m.impl("execute_engine", &execute);
}
