// evidence_check FILE [optional]: has hardware confirmed every kernel as it is built? 0 yes; 1 no,
// or the file is malformed; 77 there is no file, or (with `optional`) some kernels are unconfirmed.
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "reference/spec/error.hpp"
#include "verify/evidence.hpp"

int main(int argc, char** argv) {
  using namespace kvproof::verify;
  const std::string file = argc > 1 ? argv[1] : "";
  const bool optional = argc > 2 && std::string(argv[2]) == "optional";
  if (file.empty()) {
    fmt::print(stderr, "usage: evidence_check FILE [optional]\n");
    return 2;
  }
  const std::string remedy = fmt::format(
      "  on a GPU: kvproof verify --suite ci --steps all --device cuda --evidence {}\n", file);
  if (!std::filesystem::exists(file)) {
    fmt::print("SKIPPED: {} does not exist: no kernel is confirmed by hardware\n{}", file, remedy);
    return 77;
  }
  try {
    const std::vector<built_kernel> built = built_kernels();
    const std::vector<std::string> missing = unconfirmed_kernels(built, read_evidence(file));
    if (built.empty()) {
      fmt::print("FAILED: this build has no kernels\n");
      return 1;
    }
    if (missing.empty()) {
      fmt::print("all {} kernels are confirmed as built\n", built.size());
      return 0;
    }
    fmt::print("{}: hardware has not confirmed {} of {} kernels as built:\n",
               optional ? "SKIPPED" : "FAILED", missing.size(), built.size());
    for (const std::string& line : missing) fmt::print("  {}\n", line);
    fmt::print("{}", remedy);
    return optional ? 77 : 1;
  } catch (const kvproof::spec::input_error& e) {
    fmt::print("FAILED: {}\n", e.what());
    return 1;
  }
}
