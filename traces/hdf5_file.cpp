#include "traces/hdf5_file.hpp"

#include <string_view>

namespace kvproof::traces {

namespace {

herr_t take_first(unsigned /*depth*/, const H5E_error2_t* entry, void* reason) {
  if (entry->desc != nullptr) *static_cast<std::string*>(reason) = entry->desc;
  return 1;  // stop
}

}  // namespace

quiet_hdf5::quiet_hdf5() {
  // A damaged file or a full disk can leave objects that HDF5 cannot close; at exit it would try
  // again, print and sometimes crash. All that can be closed is closed by its owner.
  H5dont_atexit();
  H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

quiet_hdf5::~quiet_hdf5() { H5Eset_auto2(H5E_DEFAULT, print_, print_data_); }

std::string hdf5_reason() {
  std::string reason = "no reason given";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &reason);
  // Failed system calls come as "file write failed: time = ..., error message = 'No space', ...".
  constexpr std::string_view before = "error message = '";
  const std::size_t message = reason.find(before);
  if (message == std::string::npos) return reason;
  const std::size_t start = message + before.size();
  return reason.substr(0, reason.find(": time")) + ": " +
         reason.substr(start, reason.find('\'', start) - start);
}

hdf5_id half_type() {
  hdf5_id type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  H5Tset_fields(type.get(), 15, 10, 5, 0, 10);  // sign, exponent, its size, fraction, its size
  H5Tset_size(type.get(), 2);
  H5Tset_ebias(type.get(), 15);
  return type;
}

}  // namespace kvproof::traces
