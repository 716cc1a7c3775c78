// A device guard for CUDA: torch without CUDA needs one to compute with fake CUDA tensors, which
// have shapes and no values.
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {
struct Guard : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};
}  // namespace

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, Guard)
}  // namespace c10::impl
