// Error family of kvproof. Libraries throw these and never print or exit; the command line maps
// each class to its exit code in one place (verify/main.cpp).
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace kvproof::spec {

// Base of every error that kvproof throws. `what()` is one line: what happened, where, what to do
// next.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The request makes no sense: unknown name, nothing selected, impossible parameter. Exit code 2.
class usage_error : public error {
 public:
  using error::error;
};

// A file or data set is missing, malformed or holds values that the contract excludes. Exit code 3.
class input_error : public error {
 public:
  using error::error;
};

// A device is missing something, a launch failed or a kernel misbehaved. Exit code 4.
class device_error : public error {
 public:
  using error::error;
};

// A public function was called outside its contract (shape, alignment, range). A bug of the caller.
class contract_error : public error {
 public:
  using error::error;
};

}  // namespace kvproof::spec
