// A device type of its own for machines without an accelerator: it has the memory of the host, and PyTorch's CPU
// fallback does the work. What a real one would make the host wait for is counted here, and can be forbidden.

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <pybind11/pybind11.h>
#include <torch/library.h>

#include <atomic>
#include <cstring>
#include <string>
#include <unordered_set>

namespace {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;

// ---- memory: that of the host, under another name

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes ? c10::alloc_cpu(bytes) : nullptr;
    return {data, data, &c10::free_cpu, c10::Device(kDevice, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &c10::free_cpu;
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

Memory memory;

at::Tensor empty(
    at::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device>,
    std::optional<bool>,
    std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(
      size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device>,
    std::optional<bool>) {
  return at::detail::empty_strided_generic(
      size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(size), format);
}

at::Tensor& set_storage(
    at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto length = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, length, 1);
}

// ---- waiting: every step for which the host needs to know what the device has computed, or hands it data

std::atomic<int64_t> waits{0};
std::atomic<bool> forbidden{false};
thread_local int inside_fallback = 0;  // which copies to the host and back, where a device would work

void wait(const std::string& reason) {
  if (inside_fallback) {
    return;
  }
  ++waits;
  TORCH_CHECK(!forbidden, "the host waits for the device: ", reason);
}

at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) {
    return tensor;
  }
  auto* data = static_cast<char*>(const_cast<void*>(tensor.storage().data()));
  data = data ? data + tensor.storage_offset() * tensor.itemsize() : nullptr;
  return at::from_blob(
      data, tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU).requires_grad(false));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  if (from.device() != to.device()) {
    wait(to.device().is_cpu() ? "a copy to the host" : "a copy from the host");
  }
  on_host(to).copy_(on_host(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) {
    to.resize_(from.sizes());
  }
  return copy_from(from, to, false);
}

at::Scalar item(const at::Tensor& self) {
  wait("the value of a tensor");
  return on_host(self).item();
}

// ---- work: by the kernels of the CPU, which also refuse indices out of bounds

// their results have a shape, or are a value, that only the device knows
const std::unordered_set<std::string> kDataDependent{
    "aten::nonzero",
    "aten::masked_select",
    "aten::_unique",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
    "aten::unique_dim_consecutive",
    "aten::bincount",
    "aten::equal",
    "aten::repeat_interleave",
};

// a mask as an index is turned into places, as many as it has ones
bool has_mask(at::ArrayRef<c10::IValue> arguments) {
  for (const auto& argument : arguments) {
    if (argument.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& index : argument.toOptionalTensorVector()) {
        if (index && index->defined() && index->scalar_type() == at::kBool) {
          return true;
        }
      }
    }
  }
  return false;
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.schema().name();
  if (kDataDependent.count(name) || has_mask(torch::jit::last(*stack, op.schema().arguments().size()))) {
    wait(name);
  }
  struct Inside {
    Inside() { ++inside_fallback; }
    ~Inside() { --inside_fallback; }
  } inside;
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("resize_", resize);
  library.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("unfold", at::native::unfold);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", item);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// ---- what PyTorch asks of every device type

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return 1;
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto* grown = storage.unsafeGetStorageImpl();
    auto data = memory.allocate(bytes);
    std::memcpy(data.get(), storage.data(), std::min(bytes, grown->nbytes()));
    grown->set_data_ptr_noswap(std::move(data));
    grown->set_nbytes(bytes);
  }
};

Hooks hooks;

REGISTER_ALLOCATOR(kDevice, &memory);
C10_REGISTER_GUARD_IMPL(PrivateUse1, c10::impl::NoOpDeviceGuardImpl<kDevice>);

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("register_hooks", [] { at::RegisterPrivateUse1HooksInterface(&hooks); });
  module.def("waits", [] { return waits.load(); });
  module.def("forbid", [](bool yes) { return forbidden.exchange(yes); });
}
