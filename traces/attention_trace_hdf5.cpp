// Types and error texts of the HDF5 library, see attention_trace_hdf5.hpp.
#include "traces/attention_trace_hdf5.hpp"

#include <array>

namespace kvproof::traces::hdf5 {

datatype half_type() {
  datatype t(H5Tcopy(H5T_IEEE_F32LE));
  H5Tset_fields(t.get(), 15, 10, 5, 0, 10);  // sign, exponent, mantissa: position and size in bits
  H5Tset_size(t.get(), 2);
  H5Tset_ebias(t.get(), 15);
  return t;
}

std::string last_error() {
  std::string text;
  const auto keep_first = [](unsigned n, const H5E_error2_t* error, void* to) -> herr_t {
    if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(to) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  return text.empty() ? "no further detail" : text;
}

}  // namespace kvproof::traces::hdf5
