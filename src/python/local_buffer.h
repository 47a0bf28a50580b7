// The part of a process's memory that the ordinary Store's face may use for Python bytes and for
// handles on what was read: a budget, out of which single blocks come.
//
// Threads: every method from any thread, with or without the GIL.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace mooncake::python {

class LocalBuffer {
 public:
  explicit LocalBuffer(uint64_t bytes) : free_bytes_(bytes) {}

  // False: that much is not free.
  bool Take(uint64_t bytes) {
    std::lock_guard lock(mutex_);
    if (bytes > free_bytes_) return false;
    free_bytes_ -= bytes;
    return true;
  }
  void Give(uint64_t bytes) {
    std::lock_guard lock(mutex_);
    free_bytes_ += bytes;
  }
  uint64_t free_bytes() const {
    std::lock_guard lock(mutex_);
    return free_bytes_;
  }

  // Which memory is out as handles.
  void AddHandle(uint64_t address, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    handles_[address] = bytes;
  }
  void DropHandle(uint64_t address) {
    std::lock_guard lock(mutex_);
    handles_.erase(address);
  }
  // Bytes from `address` to the end of the handle it lies in; 0: in none.
  uint64_t HandleBytesFrom(uint64_t address) const {
    std::lock_guard lock(mutex_);
    auto behind = handles_.upper_bound(address);
    if (behind == handles_.begin()) return 0;
    const auto& [begin, bytes] = *--behind;
    return address - begin < bytes ? bytes - (address - begin) : 0;
  }

 private:
  mutable std::mutex mutex_;
  uint64_t free_bytes_;
  std::map<uint64_t, uint64_t> handles_;  // address -> bytes
};

// A share of it, given back with its owner.
class Share {
 public:
  Share() = default;
  // Nothing when that much is not free.
  static Share Of(std::shared_ptr<LocalBuffer> buffer, uint64_t bytes) {
    if (!buffer->Take(bytes)) return {};
    return Share(std::move(buffer), bytes);
  }
  Share(Share&& other) noexcept
      : buffer_(std::move(other.buffer_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Share& operator=(Share&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Share() {
    if (buffer_ != nullptr) buffer_->Give(bytes_);
  }

  explicit operator bool() const { return buffer_ != nullptr; }
  uint64_t bytes() const { return bytes_; }
  LocalBuffer& buffer() const { return *buffer_; }

 private:
  Share(std::shared_ptr<LocalBuffer> buffer, uint64_t bytes)
      : buffer_(std::move(buffer)), bytes_(bytes) {}

  std::shared_ptr<LocalBuffer> buffer_;
  uint64_t bytes_ = 0;
};

// Memory of one object that was read, for as long as somebody holds it.
class BufferHandle {
 public:
  // Null: the budget or the memory is short.
  static std::unique_ptr<BufferHandle> Make(const std::shared_ptr<LocalBuffer>& buffer,
                                            uint64_t bytes) {
    Share share = Share::Of(buffer, bytes);
    if (!share) return nullptr;
    void* memory =
        std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (memory == nullptr) return nullptr;
    return std::unique_ptr<BufferHandle>(new BufferHandle(std::move(share), memory));
  }
  ~BufferHandle() {
    share_.buffer().DropHandle(address());
    std::free(memory_);
  }
  BufferHandle(const BufferHandle&) = delete;
  BufferHandle& operator=(const BufferHandle&) = delete;

  void* data() const { return memory_; }
  uint64_t size() const { return share_.bytes(); }

 private:
  static constexpr uint64_t kAlignment = 64;
  BufferHandle(Share share, void* memory) : share_(std::move(share)), memory_(memory) {
    share_.buffer().AddHandle(address(), share_.bytes());
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(memory_); }

  const Share share_;
  void* const memory_;
};

}  // namespace mooncake::python
