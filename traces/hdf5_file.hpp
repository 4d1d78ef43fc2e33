// Ownership of HDF5 identifiers and silence of HDF5's own error printing. Private to traces/.
#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

namespace kvproof::traces {

// Closes what it owns. Negative identifiers (HDF5's failures) own nothing.
class hdf5_id {
 public:
  using closer = herr_t (*)(hid_t);

  hdf5_id(hid_t id, closer closes) : id_(id), close_(closes) {}
  hdf5_id(hdf5_id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  hdf5_id(const hdf5_id&) = delete;
  hdf5_id& operator=(const hdf5_id&) = delete;
  hdf5_id& operator=(hdf5_id&&) = delete;
  ~hdf5_id() { close(); }

  [[nodiscard]] bool valid() const { return id_ >= 0; }
  [[nodiscard]] hid_t get() const { return id_; }

  // False if HDF5 could not close it, for a file: could not write it out.
  bool close() { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_;
  closer close_;
};

// While it lives HDF5 prints nothing; errors are read from its error stack.
class quiet_hdf5 {
 public:
  quiet_hdf5();
  quiet_hdf5(const quiet_hdf5&) = delete;
  quiet_hdf5& operator=(const quiet_hdf5&) = delete;
  ~quiet_hdf5();

 private:
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

// What HDF5 says about the innermost failure of the last call.
[[nodiscard]] std::string hdf5_reason();

// IEEE binary16, little-endian: the type of q, k and v.
[[nodiscard]] hdf5_id half_type();

}  // namespace kvproof::traces
