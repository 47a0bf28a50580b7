// The two clients of one opened store, each made when it is first asked for: a program that uses
// one kind of data does not pay for the threads of the other.
//
// Threads: every method from any thread.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "client/object_client.h"
#include "client/store_client.h"
#include "rpc/master_api.h"
#include "rpc/node_channel.h"

namespace mooncake::cluster {

class StoreClients {
 public:
  StoreClients(std::shared_ptr<rpc::MasterApi> master,
               std::shared_ptr<rpc::NodeConnector> connector, client::StoreClientOptions weights,
               client::ObjectClientOptions objects)
      : master_(std::move(master)),
        connector_(std::move(connector)),
        weights_options_(std::move(weights)),
        objects_options_(std::move(objects)) {}

  client::StoreClient& weights() {
    std::lock_guard lock(mutex_);
    if (weights_ == nullptr) {
      weights_ = std::make_unique<client::StoreClient>(master_, connector_, weights_options_);
    }
    return *weights_;
  }
  client::ObjectClient& objects() {
    std::lock_guard lock(mutex_);
    if (objects_ == nullptr) {
      objects_ = std::make_unique<client::ObjectClient>(master_, connector_, objects_options_);
    }
    return *objects_;
  }

 private:
  const std::shared_ptr<rpc::MasterApi> master_;
  const std::shared_ptr<rpc::NodeConnector> connector_;
  const client::StoreClientOptions weights_options_;
  const client::ObjectClientOptions objects_options_;
  std::mutex mutex_;
  std::unique_ptr<client::StoreClient> weights_;
  std::unique_ptr<client::ObjectClient> objects_;
};

}  // namespace mooncake::cluster
