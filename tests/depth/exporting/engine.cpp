// A substitute for Torch-TensorRT's runtime: the class and the operator that its TorchScript files
// name, with its rules for serialized engines, and its way to put an engine into a module. It returns
// twice the depth and, as a second output, a quarter of it.
#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

const std::string ABI = "9";
// Of a serialized engine, in Torch-TensorRT's order.
const std::vector<std::string> FIELDS = {
    "ABI_TARGET", "NAME", "DEVICE", "ENGINE", "INPUT_BINDING_NAMES", "OUTPUT_BINDING_NAMES",
    "HW_COMPATIBLE", "SERIALIZED_METADATA", "TARGET_PLATFORM", "REQUIRES_OUTPUT_ALLOCATOR",
    "RESOURCE_ALLOCATION_STRATEGY", "REQUIRES_NATIVE_MULTIDEVICE"};
const size_t PLAN = 3, OUTPUT_NAMES = 5, METADATA = 7;

struct Engine : torch::CustomClassHolder {
  // {ABI, largest batch, number of outputs}, or Torch-TensorRT's fields of an engine
  std::vector<std::string> info;
  explicit Engine(std::vector<std::string> given) : info(std::move(given)) {}
  bool has_all_fields() const { return info.size() == FIELDS.size(); }
  int64_t largest() const { return has_all_fields() ? 16 : std::stoll(info.at(1)); }
  int64_t outputs() const {
    if (!has_all_fields()) return std::stoll(info.at(2));
    const auto& names = info.at(OUTPUT_NAMES);
    return 1 + std::count(names.begin(), names.end(), '%');
  }
};

c10::intrusive_ptr<Engine> unpack(std::vector<std::string> info) {
  TORCH_CHECK(
      info.at(0) == ABI, "Program to be deserialized targets a different Torch-TensorRT ABI Version (",
      info.at(0), ") than the Torch-TensorRT Runtime ABI Version (", ABI, ")");
  return c10::make_intrusive<Engine>(std::move(info));
}

std::vector<at::Tensor> execute(
    std::vector<at::Tensor> inputs, const c10::intrusive_ptr<Engine>& engine) {
  TORCH_CHECK(inputs.at(0).size(0) <= engine->largest(), "Error while setting the input shape");
  TORCH_CHECK(
      inputs.at(0).scalar_type() == at::kFloat, "Expected input tensors to have type Float");
  const auto& depth = inputs.at(1);
  if (engine->outputs() == 1) return {depth.mul(2)};
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

std::string base64(const std::string& bytes) {
  static const char* DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = i; j < i + 3; ++j)
      group = group << 8 | (j < bytes.size() ? static_cast<uint8_t>(bytes[j]) : 0);
    for (size_t digit = 0; digit < 4; ++digit)
      text += i + digit <= bytes.size() ? DIGITS[group >> (18 - 6 * digit) & 63] : '=';
  }
  return text;
}

// From fields of an engine whose plan is bytes. All else that has a plan has it in base64.
c10::intrusive_ptr<Engine> encoded(std::vector<std::string> info) {
  if (info.size() == FIELDS.size()) info.at(PLAN) = base64(info.at(PLAN));
  return c10::make_intrusive<Engine>(std::move(info));
}

using Field = std::tuple<std::string, std::string>;

// What an exporter is given of an engine: the fields with their names.
template <size_t... I>
auto flattened(const Engine& engine, std::index_sequence<I...>) {
  return std::make_tuple(Field(FIELDS.at(I), engine.info.at(I))...);
}

TORCH_LIBRARY(tensorrt, m) {
  m.class_<Engine>("Engine")
      .def(torch::init(&encoded))
      .def("__obj_flatten__",
           [](const c10::intrusive_ptr<Engine>& self) {
             return flattened(*self, std::make_index_sequence<12>());
           })
      .def("get_serialized_metadata",
           [](const c10::intrusive_ptr<Engine>& self) { return self->info.at(METADATA); })
      .def_pickle(
          [](const c10::intrusive_ptr<Engine>& self) { return self->info; },
          [](std::vector<std::string> info) { return unpack(std::move(info)); });
  m.def("execute_engine(Tensor[] input_tensors, __torch__.torch.classes.tensorrt.Engine engine) -> Tensor[]");
  m.def("embed(str[] info) -> Any", &embed);
  m.def("ABI_VERSION", []() -> std::string { return ABI; });
  // What Torch-TensorRT's Python package asks of its runtime.
  for (size_t i = 0; i < FIELDS.size(); ++i)
    m.def((FIELDS[i] + "_IDX").c_str(), [i]() -> int64_t { return i; });
  m.def("SERIALIZATION_LEN", []() -> int64_t { return FIELDS.size(); });
  m.def("get_cudagraphs_mode", []() -> int64_t { return 0; });
  m.def("get_logging_level", []() -> int64_t { return 0; });
  m.def("set_logging_level", [](int64_t) {});
  for (const char* name : {"get_multi_device_safe_mode", "NATIVE_TRT_COLLECTIVES_AVAIL"})
    m.def(name, []() -> bool { return false; });
  for (const char* name : {"_platform_unknown", "_platform_linux_x86_64"})
    m.def(name, []() -> std::string { return "linux_x86_64"; });
  for (const char* name : {"SERIALIZED_ENGINE_BINDING_DELIM", "SERIALIZED_RT_DEVICE_DELIM"})
    m.def(name, []() -> std::string { return "%"; });
}

TORCH_LIBRARY_IMPL(tensorrt, CompositeExplicitAutograd, m) {
  m.impl("execute_engine", &execute);
}
