// What stands behind `_core.ObjectStore`: an opened store's client of ordinary objects, its local
// buffer, and the memory that the process lends.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/object_client.h"
#include "cluster/memory_lender.h"
#include "cluster/open_store.h"
#include "python/local_buffer.h"
#include "python/store_error.h"

namespace mooncake::python {

namespace nb = nanobind;

class ObjectStore {
 public:
  ObjectStore(std::unique_ptr<cluster::OpenedStore> opened, uint64_t local_buffer_bytes)
      : opened_(std::move(opened)),
        client_(opened_->objects()),
        buffer_(std::make_shared<LocalBuffer>(local_buffer_bytes)) {}

  // Nothing is closed under a call that still runs: whoever calls holds the object.
  ~ObjectStore() {
    nb::gil_scoped_release release;
    lenders_.clear();
    opened_.reset();
  }

  void Lend(const std::string& master_address, const std::string& node_id, uint64_t bytes,
            const std::string& tcp_host) {
    cluster::MemoryLenderOptions options;
    options.master_address = master_address;
    options.node_id = node_id;
    options.capacity_bytes = bytes;
    options.tcp_host = tcp_host;
    Result<std::unique_ptr<cluster::MemoryLender>> lender = [&] {
      nb::gil_scoped_release release;
      return cluster::MemoryLender::Start(options);
    }();
    lenders_.push_back(TakeOrThrow(std::move(lender)));
  }
  void Unlend(const std::string& node_id) {
    std::vector<std::unique_ptr<cluster::MemoryLender>> going;
    for (auto& lender : lenders_) {
      if (lender->node_id() == node_id) going.push_back(std::move(lender));
    }
    std::erase(lenders_, nullptr);
    nb::gil_scoped_release release;
    going.clear();
  }

  client::ObjectClient& client() { return client_; }
  const std::shared_ptr<LocalBuffer>& buffer() const { return buffer_; }
  cluster::OpenedStore& opened() { return *opened_; }

 private:
  std::unique_ptr<cluster::OpenedStore> opened_;
  client::ObjectClient& client_;
  const std::shared_ptr<LocalBuffer> buffer_;
  std::vector<std::unique_ptr<cluster::MemoryLender>> lenders_;
};

// bind_tenants.cc
void BindTenants(nb::class_<ObjectStore>& store);
// bind_put_sessions.cc
void BindPutSessions(nb::class_<ObjectStore>& store);

}  // namespace mooncake::python
