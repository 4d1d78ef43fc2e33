// The CUDA device against a stand-in driver: what reaches the driver, and what its errors become.
#include "gpu/device/cuda/cuda_device.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "reference/spec/error.hpp"
#include "tests/gpu/cuda/fake_cuda.hpp"

namespace {

using namespace kvproof::gpu;
using kvproof::spec::contract_error;
using kvproof::spec::device_error;
using kvproof::tests::fake_cuda;

constexpr const char* library = KVPROOF_FAKE_CUDA;

fake_cuda& state() {
  static void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  BOOST_REQUIRE_MESSAGE(handle != nullptr, "the stand-in driver cannot be loaded");
  return *static_cast<fake_cuda*>(::dlsym(handle, "fake_cuda_state"));
}

template <class Element>
std::span<const std::byte> bytes_of(const Element& x) {
  return std::as_bytes(std::span(&x, 1));
}

kernel_module cubin_module(std::string_view content) {  // content ends with a zero byte
  return {"decode_k8v4", "// ptx", std::as_bytes(std::span(content.data(), content.size() + 1))};
}

// Every test ends with all contexts popped, and no entry point ran without one.
struct fixture {
  fake_cuda& fake = state();

  fixture() { fake = fake_cuda(); }
  ~fixture() {
    BOOST_TEST(fake.context_depth == 0);
    BOOST_TEST(fake.calls_without_context == 0);
    BOOST_TEST(fake.retained == 0);
    BOOST_TEST(fake.live_modules == 0);
    BOOST_TEST(fake.live_streams == 0);
    BOOST_TEST(fake.live_events == 0);
    BOOST_TEST(fake.allocations.empty());
  }
  fixture(const fixture&) = delete;
  fixture& operator=(const fixture&) = delete;

  static std::unique_ptr<device> open(int ordinal = 0) {
    std::string why;
    auto dev = open_cuda_device(ordinal, &why, library);
    BOOST_REQUIRE_MESSAGE(dev != nullptr, why);
    return dev;
  }
  [[nodiscard]] std::int64_t calls_of(const char* name) const {
    return std::count(fake.calls.begin(), fake.calls.end(), name);
  }
};

// The text of the device_error that `action` throws; it names all of `parts` in one line.
template <class Action>
void check_error(Action action, const std::vector<std::string>& parts) {
  try {
    action();
  } catch (const device_error& e) {
    const std::string text = e.what();
    for (const std::string& part : parts) {
      BOOST_TEST(text.find(part) != std::string::npos, text << " does not name " << part);
    }
    BOOST_TEST(text.find('\n') == std::string::npos, text);
    return;
  }
  BOOST_ERROR("no device_error was thrown");
}

}  // namespace

BOOST_AUTO_TEST_CASE(missing_driver_is_no_error) {
  std::string why;
  BOOST_TEST(count_cuda_devices(&why, "libcuda_of_nobody.so.1") == 0);
  BOOST_TEST(why.find("libcuda_of_nobody.so.1") != std::string::npos);
  why.clear();
  BOOST_TEST(open_cuda_device(0, &why, "libcuda_of_nobody.so.1") == nullptr);
  BOOST_TEST(!why.empty());
  BOOST_TEST(open_cuda_device(0, nullptr, "libcuda_of_nobody.so.1") == nullptr);
}

BOOST_AUTO_TEST_CASE(library_without_the_entry_points_is_too_old) {
  std::string why;
  BOOST_TEST(open_cuda_device(0, &why, "libm.so.6") == nullptr);
  BOOST_TEST(why.find("cuLaunchKernelEx") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(this_machine_has_devices_or_a_reason) {
  std::string why;
  const int count = count_cuda_devices(&why);
  BOOST_TEST((count > 0 || !why.empty()));
  if (count == 0) BOOST_TEST(open_cuda_device(0) == nullptr);
}

BOOST_FIXTURE_TEST_CASE(no_device_and_broken_driver_differ, fixture) {
  std::string why;
  for (const int absent : {100, 34}) {
    fake.fail = {{"cuInit", absent}};
    why.clear();
    BOOST_TEST(count_cuda_devices(&why, library) == 0);
    BOOST_TEST(!why.empty());
    BOOST_TEST(open_cuda_device(0, nullptr, library) == nullptr);
  }
  fake.fail = {{"cuInit", 999}};
  check_error([] { (void)open_cuda_device(0, nullptr, library); },
              {"cuInit", "CUDA_ERROR_UNKNOWN", "nvidia-smi"});
  check_error([] { (void)count_cuda_devices(nullptr, library); }, {"cuInit"});
  fake.fail = {{"cuInit", 803}};  // the stand-in knows no name for it
  check_error([] { (void)open_cuda_device(0, nullptr, library); }, {"cuInit", "error 803"});
  fake.fail = {{"cuDevicePrimaryCtxRetain", 2}};
  check_error([] { (void)open_cuda_device(0, nullptr, library); },
              {"cuDevicePrimaryCtxRetain", "CUDA_ERROR_OUT_OF_MEMORY"});
  fake.fail.clear();
  fake.num_devices = 0;
  why.clear();
  BOOST_TEST(open_cuda_device(0, &why, library) == nullptr);
  BOOST_TEST(!why.empty());
}

BOOST_FIXTURE_TEST_CASE(ordinal_chooses_the_device, fixture) {
  BOOST_TEST(count_cuda_devices(nullptr, library) == 2);
  std::string why;
  BOOST_TEST(open_cuda_device(2, &why, library) == nullptr);
  BOOST_TEST(why.find("device 2") != std::string::npos);
  BOOST_TEST(open_cuda_device(-1, nullptr, library) == nullptr);
  const device_info info = open(1)->info();
  BOOST_TEST((info.kind == device_kind::cuda));
  BOOST_TEST(info.name == "Fake GPU 1");
  BOOST_TEST(info.compute_capability == 90);
  BOOST_TEST(info.num_multiprocessors == 1016);
  BOOST_TEST(info.l2_bytes == 1038);
  BOOST_TEST(info.max_shared_bytes == 1097);
  BOOST_TEST(info.memory_bytes == std::int64_t{141} << 30);
  BOOST_TEST(info.driver == "CUDA 13.0");
}

BOOST_FIXTURE_TEST_CASE(memory_is_poisoned_and_copied, fixture) {
  const auto dev = open();
  const device_buffer buffer(*dev, 5);
  std::array<std::uint8_t, 5> host{};
  dev->copy_to_host(std::as_writable_bytes(std::span(host)), buffer.get());
  for (const std::uint8_t x : host) BOOST_TEST(x == 0xcd);
  const std::array<std::uint8_t, 3> in = {1, 2, 3};
  dev->copy_to_device(buffer.get() + 1, std::as_bytes(std::span(in)));
  dev->fill(buffer.get() + 4, std::byte{0x77}, 1);
  dev->copy_to_host(std::as_writable_bytes(std::span(host)), buffer.get());
  BOOST_TEST((host == std::array<std::uint8_t, 5>{0xcd, 1, 2, 3, 0x77}));
}

BOOST_FIXTURE_TEST_CASE(empty_and_negative_sizes, fixture) {
  const auto dev = open();
  const device_ptr p = dev->allocate(0);
  BOOST_TEST((p != device_ptr{}));
  dev->copy_to_device(p, {});
  dev->copy_to_host({}, p);
  dev->fill(p, std::byte{1}, 0);
  dev->deallocate(p);
  BOOST_CHECK_THROW((void)dev->allocate(-1), contract_error);
}

BOOST_FIXTURE_TEST_CASE(failed_allocation_says_how_much, fixture) {
  const auto dev = open();
  fake.fail = {{"cuMemAlloc", 2}};
  check_error([&] { (void)dev->allocate(123456789); },
              {"cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "123456789", "smaller case"});
  fake.fail = {{"cuMemsetD8", 1}};
  check_error([&] { (void)dev->allocate(16); }, {"cuMemsetD8", "CUDA_ERROR_INVALID_VALUE"});
  fake.fail.clear();
}

BOOST_FIXTURE_TEST_CASE(copies_wait_for_kernels_and_for_themselves, fixture) {
  const auto dev = open();
  const device_buffer buffer(*dev, 4);
  const std::uint32_t x = 7;
  fake.calls.clear();
  dev->copy_to_device(buffer.get(), bytes_of(x));
  const std::vector<std::string> expected = {"cuCtxPushCurrent", "cuCtxSynchronize", "cuMemcpyHtoD",
                                             "cuCtxSynchronize", "cuCtxPopCurrent"};
  BOOST_TEST(fake.calls == expected, boost::test_tools::per_element());
}

BOOST_FIXTURE_TEST_CASE(launch_passes_everything, fixture) {
  struct parameters {
    std::uint64_t address;
    std::int32_t count;
    float scale;
  };
  const parameters params{0x123456789abcdef0u, -7, 1.5f};
  fake.param_bytes = sizeof params;
  const auto dev = open();
  const auto k = dev->load(cubin_module("cubin A"), "decode_kernel");
  const auto s = dev->create_stream();
  dev->launch(*k, {{3, 4, 5}, {128, 2, 1}, {1, 1, 1}, 1024}, bytes_of(params), s.get());
  dev->launch(*k, {{6, 1, 1}, {32, 1, 1}, {2, 1, 1}, 0, true}, bytes_of(params));
  BOOST_REQUIRE(fake.launches.size() == 2);
  const auto& first = fake.launches[0];
  BOOST_TEST(first.entry == "decode_kernel");
  BOOST_TEST((first.grid == std::array<unsigned, 3>{3, 4, 5}));
  BOOST_TEST((first.block == std::array<unsigned, 3>{128, 2, 1}));
  BOOST_TEST((first.cluster == std::array<unsigned, 3>{0, 0, 0}));
  BOOST_TEST(!first.overlaps_previous);
  BOOST_TEST(first.shared_bytes == 1024u);
  BOOST_TEST(first.stream != nullptr);
  BOOST_TEST(std::memcmp(first.params.data(), &params, sizeof params) == 0);
  BOOST_TEST((fake.launches[1].cluster == std::array<unsigned, 3>{2, 1, 1}));
  BOOST_TEST(fake.launches[1].overlaps_previous);
  BOOST_TEST(fake.launches[1].stream == nullptr);
  BOOST_TEST(fake.stream_flags.at(0) == 0u);  // ordered with the default stream, where copies run
}

BOOST_FIXTURE_TEST_CASE(permanent_modules_are_known_by_address, fixture) {
  const auto dev = open();
  kernel_module module = cubin_module("cubin A");
  module.permanent = true;
  const auto k = dev->load(module, "decode_kernel");
  const std::size_t calls = fake.calls.size();
  BOOST_TEST(dev->load(module, "decode_kernel") == k);
  BOOST_TEST(fake.calls.size() == calls);  // nothing asked of the driver
  module.permanent = false;
  BOOST_TEST(dev->load(module, "decode_kernel") != k);
  BOOST_TEST(k->max_ctas_per_multiprocessor(128, 1000) == 1016);
  const std::size_t asked = fake.calls.size();
  BOOST_TEST(k->max_ctas_per_multiprocessor(128, 1000) == 1016);
  BOOST_TEST(fake.calls.size() == asked);
}

BOOST_FIXTURE_TEST_CASE(empty_grid_is_refused, fixture) {
  const auto dev = open();
  const auto k = dev->load(cubin_module("cubin A"), "decode_kernel");
  for (const extent3 grid : {extent3{0, 1, 1}, extent3{1, 0, 1}, extent3{1, 1, 0}}) {
    BOOST_CHECK_THROW(dev->launch(*k, {grid, {32, 1, 1}, {}, 0}, {}), contract_error);
  }
  BOOST_TEST(fake.launches.empty());
}

BOOST_FIXTURE_TEST_CASE(large_shared_memory_is_asked_for_once, fixture) {
  const auto dev = open();
  const auto k = dev->load(cubin_module("cubin A"), "decode_kernel");
  const auto launch = [&](std::uint32_t bytes) {
    dev->launch(*k, {{1, 1, 1}, {32, 1, 1}, {}, bytes}, bytes_of(bytes));
  };
  launch(48 * 1024);
  BOOST_TEST(fake.function_attributes.empty());
  launch(100000);
  launch(100000);
  launch(60000);
  BOOST_REQUIRE(fake.function_attributes.size() == 1);
  BOOST_TEST((fake.function_attributes[0] == std::pair{8, 100000}));
  fake.fail = {{"cuFuncSetAttribute", 1}};
  check_error([&] { launch(300000); }, {"cuFuncSetAttribute", "300000", "decode_kernel"});
  fake.fail.clear();
  BOOST_TEST(fake.launches.size() == 4);
}

BOOST_FIXTURE_TEST_CASE(facts_and_occupancy, fixture) {
  const auto dev = open();
  const auto k = dev->load(cubin_module("cubin A"), "decode_kernel");
  const kernel_facts facts = k->facts();
  BOOST_TEST(facts.max_threads == 100);
  BOOST_TEST(facts.static_shared_bytes == 101);
  BOOST_TEST(facts.local_bytes == 103);
  BOOST_TEST(facts.registers == 104);
  BOOST_TEST(k->max_ctas_per_multiprocessor(256, 3) == 8 + 3);
}

BOOST_FIXTURE_TEST_CASE(modules_are_known_by_content, fixture) {
  const auto dev = open();
  std::string content = "cubin A";
  (void)dev->load(cubin_module(content), "a");
  (void)dev->load(cubin_module(content), "bb");
  const std::string copy = content;
  (void)dev->load(cubin_module(copy), "a");
  BOOST_TEST(fake.modules.size() == 1);
  content[6] = 'B';  // another module in the same place
  (void)dev->load(cubin_module(content), "a");
  BOOST_REQUIRE(fake.modules.size() == 2);
  BOOST_TEST(fake.modules[1] == "cubin B");
}

BOOST_FIXTURE_TEST_CASE(ptx_is_compiled_only_without_cubin, fixture) {
  const auto dev = open();
  const std::string text = ".version 9.0 and what follows the module";
  const kernel_module ptx_only{"foreign", std::string_view(text).substr(0, 12), {}};
  (void)dev->load(ptx_only, "a");
  BOOST_REQUIRE(fake.modules.size() == 1);
  BOOST_TEST(fake.modules[0] == ".version 9.0");
  fake.fail = {{"cuModuleLoadDataEx", 218}};
  fake.jit_log = "ptxas line 7: error\nunknown instruction";
  check_error(
      [&] {
        (void)dev->load({"foreign", ".version 9.1", {}}, "a");
      },
      {"cuModuleLoadDataEx", "CUDA_ERROR_INVALID_PTX", "foreign",
       "ptxas line 7: error unknown instruction"});
  check_error([&] { (void)dev->load(cubin_module("cubin C"), "a"); },
              {"cuModuleLoadDataEx", "cubin of module decode_k8v4"});
  fake.fail = {{"cuModuleGetFunction", 500}};
  check_error([&] { (void)dev->load(ptx_only, "nosuch"); },
              {"cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND", "nosuch", "foreign"});
  fake.fail.clear();
}

BOOST_FIXTURE_TEST_CASE(faults_name_the_kernels_since_the_last_synchronisation, fixture) {
  const auto dev = open();
  const auto first = dev->load(cubin_module("cubin A"), "a_kernel");
  const auto second = dev->load(cubin_module("cubin A"), "quantize_kernel");
  const launch_shape shape{{1, 1, 1}, {32, 1, 1}, {}, 0};
  const int x = 0;
  dev->launch(*first, shape, bytes_of(x));
  dev->synchronize();
  dev->launch(*second, shape, bytes_of(x));
  fake.fail = {{"cuCtxSynchronize", 700}};
  const auto check_fault = [&](auto action) {
    try {
      action();
      BOOST_ERROR("no error was thrown");
    } catch (const device_error& e) {
      const std::string text = e.what();
      BOOST_TEST(text.find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string::npos, text);
      BOOST_TEST(text.find("quantize_kernel") != std::string::npos, text);
      BOOST_TEST(text.find("emulator") != std::string::npos, text);
      BOOST_TEST(text.find("a_kernel") == std::string::npos, text);
    }
  };
  check_fault([&] { dev->synchronize(); });
  std::uint32_t host = 0;
  check_fault(
      [&] { dev->copy_to_host(std::as_writable_bytes(std::span(&host, 1)), device_ptr{8}); });
  check_fault([&] { dev->copy_to_device(device_ptr{8}, bytes_of(host)); });
  check_fault([&] { dev->fill(device_ptr{8}, std::byte{1}, 4); });
  fake.fail = {{"cuLaunchKernelEx", 1}};
  check_error(
      [&] {
        dev->launch(*second, {{7, 8, 9}, {64, 1, 1}, {}, 512}, bytes_of(x));
      },
      {"cuLaunchKernelEx", "quantize_kernel", "7x8x9", "64", "512"});
  fake.fail.clear();
}

BOOST_FIXTURE_TEST_CASE(events_measure_microseconds, fixture) {
  const auto dev = open();
  const auto begin = dev->create_event(), end = dev->create_event();
  const auto s = dev->create_stream();
  dev->record(*begin, s.get());
  dev->record(*end, nullptr);
  BOOST_TEST(dev->elapsed_us(*begin, *end) == 250.0);
  BOOST_TEST(calls_of("cuEventRecord") == 2);
  BOOST_TEST(calls_of("cuEventSynchronize") == 1);
}

// Handles outlive the device that made them: the context goes with the last of them.
BOOST_FIXTURE_TEST_CASE(handles_keep_the_context, fixture) {
  auto dev = open();
  auto s = dev->create_stream();
  dev.reset();
  BOOST_TEST(fake.retained == 1);
  s.reset();
  BOOST_TEST(fake.retained == 0);
}
