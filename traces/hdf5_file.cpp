#include "traces/hdf5_file.hpp"

namespace kvproof::traces {

namespace {

herr_t take_first(unsigned /*depth*/, const H5E_error2_t* entry, void* reason) {
  if (entry->desc != nullptr) *static_cast<std::string*>(reason) = entry->desc;
  return 1;  // stop
}

}  // namespace

quiet_hdf5::quiet_hdf5() {
  H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

quiet_hdf5::~quiet_hdf5() { H5Eset_auto2(H5E_DEFAULT, print_, print_data_); }

std::string hdf5_reason() {
  std::string reason = "no reason given";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &reason);
  return reason;
}

hdf5_id half_type() {
  hdf5_id type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  H5Tset_fields(type.get(), 15, 10, 5, 0, 10);  // sign, exponent, its size, fraction, its size
  H5Tset_size(type.get(), 2);
  H5Tset_ebias(type.get(), 15);
  return type;
}

}  // namespace kvproof::traces
