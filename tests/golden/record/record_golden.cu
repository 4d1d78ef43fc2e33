// Records the golden outputs of tests/golden on an sm_90 GPU: mma.sync, wgmma and
// ex2.approx.ftz.f32 on the inputs of golden_inputs.hpp. Nothing is computed on the host; build and
// use: README.md.
//   record_golden OUTDIR      writes OUTDIR/*.bin and OUTDIR/golden.json
#include <cuda_runtime.h>

#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/golden/golden_file.hpp"
#include "tests/golden/golden_inputs.hpp"

namespace {

using namespace kvproof::golden;

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
  }
}

template <class T>
class device_array {
 public:
  explicit device_array(std::size_t count) : count_(count) {
    check(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc");
    check(cudaMemset(data_, 0, count * sizeof(T)), "cudaMemset");
  }
  explicit device_array(const std::vector<T>& host) : device_array(host.size()) {
    check(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~device_array() { cudaFree(data_); }
  device_array(const device_array&) = delete;
  device_array& operator=(const device_array&) = delete;

  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] std::vector<T> to_host() const {
    std::vector<T> host(count_);
    check(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

enum class operand : int { f16, bf16 };

__device__ std::uint32_t load_pair(const std::uint16_t* p) {
  return *reinterpret_cast<const std::uint32_t*>(p);
}

// One warp per tile of 16 x 8 outputs. A [16][Depth], B [8][Depth], C and D [16][8].
template <operand Type, int Depth>
__global__ void mma_kernel(const std::uint16_t* a, const std::uint16_t* b, const float* c,
                           float* d) {
  const int g = static_cast<int>(threadIdx.x) >> 2, t = static_cast<int>(threadIdx.x) & 3;
  const std::size_t tile = blockIdx.x;
  a += tile * 16 * Depth;
  b += tile * 8 * Depth;
  c += tile * 128;
  d += tile * 128;
  const std::uint32_t a0 = load_pair(a + g * Depth + 2 * t);
  const std::uint32_t a1 = load_pair(a + (g + 8) * Depth + 2 * t);
  const std::uint32_t b0 = load_pair(b + g * Depth + 2 * t);
  float d0 = c[g * 8 + 2 * t], d1 = c[g * 8 + 2 * t + 1];
  float d2 = c[(g + 8) * 8 + 2 * t], d3 = c[(g + 8) * 8 + 2 * t + 1];
  if constexpr (Depth == 8) {
    static_assert(Type == operand::f16);
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(a0), "r"(a1), "r"(b0));
  } else {
    const std::uint32_t a2 = load_pair(a + g * Depth + 2 * t + 8);
    const std::uint32_t a3 = load_pair(a + (g + 8) * Depth + 2 * t + 8);
    const std::uint32_t b1 = load_pair(b + g * Depth + 2 * t + 8);
    if constexpr (Type == operand::f16) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
          : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    } else {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
          : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
  }
  d[g * 8 + 2 * t] = d0;
  d[g * 8 + 2 * t + 1] = d1;
  d[(g + 8) * 8 + 2 * t] = d2;
  d[(g + 8) * 8 + 2 * t + 1] = d3;
}

// One warpgroup per tile of 64 x 8 outputs: four chained k16 steps, A [64][64] from registers, B
// [8][64] from shared memory (K-major, no swizzle: core matrices of 8 columns x 16 bytes; both
// strides of the descriptor are one core matrix, so which is which does not matter at N = 8).
template <operand Type>
__global__ void __launch_bounds__(128)
    wgmma_kernel(const std::uint16_t* a, const std::uint16_t* b, const float* c, float* d) {
  constexpr int depth = 64, steps = 4;
  __shared__ alignas(128) std::uint16_t shared_b[steps * 2 * 8 * 8];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread >> 5, g = (thread & 31) >> 2, t = thread & 3;
  const std::size_t tile = blockIdx.x;
  a += (tile * 64 + static_cast<std::size_t>(warp) * 16) * depth;
  b += tile * 8 * depth;
  c += tile * 512 + static_cast<std::size_t>(warp) * 128;
  d += tile * 512 + static_cast<std::size_t>(warp) * 128;
  if (thread <
      64) {  // core matrix thread / 8 holds elements 8 * (thread / 8) .. + 7 of each column
    const int core = thread >> 3, column = thread & 7;
    *reinterpret_cast<uint4*>(shared_b + core * 64 + column * 8) =
        *reinterpret_cast<const uint4*>(b + column * depth + core * 8);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  std::uint32_t fragment[steps][4];
  for (int s = 0; s < steps; ++s) {
    for (int i = 0; i < 4; ++i) {
      fragment[s][i] = load_pair(a + (g + (i & 1) * 8) * depth + s * 16 + (i >> 1) * 8 + 2 * t);
    }
  }
  float d0 = c[g * 8 + 2 * t], d1 = c[g * 8 + 2 * t + 1];
  float d2 = c[(g + 8) * 8 + 2 * t], d3 = c[(g + 8) * 8 + 2 * t + 1];
  const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_b));
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int s = 0; s < steps; ++s) {
    constexpr std::uint64_t core_bytes = 128;
    const std::uint64_t descriptor =
        static_cast<std::uint64_t>(((base + s * 2 * core_bytes) & 0x3ffff) >> 4) |
        core_bytes >> 4 << 16 | core_bytes >> 4 << 32;
    if constexpr (Type == operand::f16) {
      asm volatile(
          "{ .reg .pred accumulate; setp.ne.b32 accumulate, 1, 0; "
          "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
          "{%0,%1,%2,%3},{%4,%5,%6,%7}, %8, accumulate, 1, 1, 0; }"
          : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
          : "r"(fragment[s][0]), "r"(fragment[s][1]), "r"(fragment[s][2]), "r"(fragment[s][3]),
            "l"(descriptor));
    } else {
      asm volatile(
          "{ .reg .pred accumulate; setp.ne.b32 accumulate, 1, 0; "
          "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
          "{%0,%1,%2,%3},{%4,%5,%6,%7}, %8, accumulate, 1, 1, 0; }"
          : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
          : "r"(fragment[s][0]), "r"(fragment[s][1]), "r"(fragment[s][2]), "r"(fragment[s][3]),
            "l"(descriptor));
    }
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;"
               : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)::"memory");
  d[g * 8 + 2 * t] = d0;
  d[g * 8 + 2 * t + 1] = d1;
  d[(g + 8) * 8 + 2 * t] = d2;
  d[(g + 8) * 8 + 2 * t + 1] = d3;
}

__device__ std::uint32_t ex2(std::uint32_t input) {
  float result;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(__uint_as_float(input)));
  return __float_as_uint(result);
}

__global__ void ex2_kernel(const std::uint32_t* in, std::uint32_t* out, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = ex2(in[i]);
}

// Grid y is the slice.
__global__ void ex2_slice_kernel(unsigned long long* sums) {
  const std::uint32_t first = blockIdx.y * inputs_per_ex2_slice;
  unsigned long long sum = 0;
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < inputs_per_ex2_slice;
       i += gridDim.x * blockDim.x) {
    sum += ex2_fingerprint(first + i, ex2(first + i));
  }
  atomicAdd(&sums[blockIdx.y], sum);
}

void launch_matrix(std::size_t kind_idx, unsigned tiles, const std::uint16_t* a,
                   const std::uint16_t* b, const float* c, float* d) {
  const std::string_view name = matrix_kinds[kind_idx].name;
  if (name == "mma_m16n8k16_f16") {
    mma_kernel<operand::f16, 16><<<tiles, 32>>>(a, b, c, d);
  } else if (name == "mma_m16n8k16_bf16") {
    mma_kernel<operand::bf16, 16><<<tiles, 32>>>(a, b, c, d);
  } else if (name == "mma_m16n8k8_f16") {
    mma_kernel<operand::f16, 8><<<tiles, 32>>>(a, b, c, d);
  } else if (name == "wgmma_m64n8k16_f16") {
    wgmma_kernel<operand::f16><<<tiles, 128>>>(a, b, c, d);
  } else if (name == "wgmma_m64n8k16_bf16") {
    wgmma_kernel<operand::bf16><<<tiles, 128>>>(a, b, c, d);
  } else {
    throw std::logic_error("no kernel for " + std::string(name));
  }
  check(cudaGetLastError(), "launch");
  check(cudaDeviceSynchronize(), "matrix kernel");
}

golden_file<std::uint32_t> record_matrix(std::size_t kind_idx) {
  const matrix_kind& kind = matrix_kinds[kind_idx];
  std::vector<std::uint16_t> a, b;
  std::vector<float> c;
  for (int d = 0; d < num_distributions; ++d) {
    for (int tile = 0; tile < num_tiles(kind); ++tile) {
      const matrix_tile t = make_tile(kind_idx, static_cast<distribution>(d), tile);
      a.insert(a.end(), t.a.begin(), t.a.end());
      b.insert(b.end(), t.b.begin(), t.b.end());
      for (const std::uint32_t bits : t.c) c.push_back(std::bit_cast<float>(bits));
    }
  }
  const device_array<std::uint16_t> device_a(a), device_b(b);
  const device_array<float> device_c(c), device_d(c.size());
  launch_matrix(kind_idx, static_cast<unsigned>(num_distributions * num_tiles(kind)),
                device_a.get(), device_b.get(), device_c.get(), device_d.get());
  golden_file<std::uint32_t> file{recorded_seed, num_distributions, outputs_per_distribution, {}};
  for (const float x : device_d.to_host()) file.words.push_back(std::bit_cast<std::uint32_t>(x));
  return file;
}

golden_file<std::uint32_t> record_ex2() {
  std::vector<std::uint32_t> in;
  for (int ex2_class = 0; ex2_class < num_ex2_classes; ++ex2_class) {
    for (int i = 0; i < inputs_per_ex2_class; ++i) in.push_back(ex2_input(ex2_class, i));
  }
  const device_array<std::uint32_t> device_in(in), device_out(in.size());
  ex2_kernel<<<static_cast<unsigned>(in.size() / 256), 256>>>(device_in.get(), device_out.get(),
                                                              static_cast<int>(in.size()));
  check(cudaGetLastError(), "launch");
  check(cudaDeviceSynchronize(), "ex2_kernel");
  return {recorded_seed, num_ex2_classes, inputs_per_ex2_class, device_out.to_host()};
}

golden_file<std::uint64_t> record_ex2_slices() {
  const device_array<unsigned long long> sums(num_ex2_slices);
  ex2_slice_kernel<<<dim3(64, num_ex2_slices), 256>>>(sums.get());
  check(cudaGetLastError(), "launch");
  check(cudaDeviceSynchronize(), "ex2_slice_kernel");
  golden_file<std::uint64_t> file{recorded_seed, 1, num_ex2_slices, {}};
  for (const unsigned long long sum : sums.to_host()) file.words.push_back(sum);
  return file;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

// "580.65.06" out of the first line of the kernel driver's version file; empty if there is none.
std::string kernel_driver() {
  std::ifstream in("/proc/driver/nvidia/version");
  for (std::string word; in >> word;) {
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != word.npos) {
      return word;
    }
  }
  return "";
}

std::string version_text(int version) {  // 13000 is 13.0
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void record(const std::string& directory) {
  cudaDeviceProp properties{};
  int driver = 0;
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  if (properties.major != 9 || properties.minor != 0) {
    throw std::runtime_error(std::string(properties.name) + " is not an sm_90 GPU");
  }
  std::string files;
  for (std::size_t k = 0; k < matrix_kinds.size(); ++k) {
    const std::string name(matrix_kinds[k].name);
    write_golden_file(directory + "/" + name + ".bin", record_matrix(k));
    files += "    \"" + name + ".bin\": {\"distributions\": " + std::to_string(num_distributions) +
             ", \"outputs_per_distribution\": " + std::to_string(outputs_per_distribution) + "},\n";
  }
  write_golden_file(directory + "/ex2.bin", record_ex2());
  files += "    \"ex2.bin\": {\"classes\": " + std::to_string(num_ex2_classes) +
           ", \"inputs_per_class\": " + std::to_string(inputs_per_ex2_class) + "},\n";
  write_golden_file(directory + "/ex2_slices.bin", record_ex2_slices());
  files += "    \"ex2_slices.bin\": {\"slices\": " + std::to_string(num_ex2_slices) +
           ", \"inputs_per_slice\": " + std::to_string(inputs_per_ex2_slice) + "}\n";

  const std::string path = directory + "/golden.json";
  std::ofstream json(path);
  json << "{\n  \"schema\": \"kvproof-golden-1\",\n  \"device\": \"" << properties.name
       << "\",\n  \"compute_capability\": " << properties.major * 10 + properties.minor
       << ",\n  \"driver\": \"" << kernel_driver() << "\",\n  \"driver_cuda_version\": \""
       << version_text(driver) << "\",\n  \"nvcc\": \"" << __CUDACC_VER_MAJOR__ << "."
       << __CUDACC_VER_MINOR__ << "." << __CUDACC_VER_BUILD__ << "\",\n  \"date\": \"" << today()
       << "\",\n  \"seed\": " << recorded_seed << ",\n  \"files\": {\n"
       << files << "  }\n}\n";
  if (!json.flush()) throw std::runtime_error(path + ": cannot be written");
  std::printf("recorded on %s into %s\n", properties.name, directory.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: record_golden OUTDIR\n");
    return 2;
  }
  try {
    record(argv[1]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "record_golden: %s\n", e.what());
    return 4;
  }
  return 0;
}
