// Keeps a node known to the Master, on a thread of its own.
//
//   1. RegisterNode with the instance's grant key and what cluster its folder belongs to; a new
//   folder is the Master's cluster's from then on;
//   2. every report interval: ReportNode with all that the node holds, and Drop what the answer
//   names;
//   3. NOT_FOUND (a Master that was restarted): at once to 1; unreachable: again after a pause that
//      doubles from 50 ms to 2 s.
//
// The node and the Master outlive it. Threads: every method from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "env/deadline.h"
#include "env/sync.h"
#include "node/node.h"
#include "rpc/master_api.h"

namespace mooncake::node {

struct NodeAgentOptions {
  std::string host_id;
  std::string socket_path;          // empty: an embedded node
  std::string tcp_address = {};     // host:port for clients of other hosts; empty: none
  uint64_t report_interval_ms = 0;  // 0: what the Master says
  bool objects_only = false;        // its memory is for ordinary objects alone
};

class NodeAgent {
 public:
  NodeAgent(Node& node, std::shared_ptr<rpc::MasterApi> master, NodeAgentOptions options);
  ~NodeAgent();
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;

  // UNAVAILABLE, with the Master's last answer, when the deadline passes first. INVALID_ARGUMENT,
  // CORRUPT: the Master refused the node.
  Status WaitRegistered(env::Deadline deadline);
  // Reports now instead of at the next interval, and returns when one whole report that began after
  // the call was answered.
  Status ReportNow(env::Deadline deadline);

  // Ends the thread; idempotent.
  void Stop();

 private:
  void Run();
  Status Register();
  Status Report();
  Status WaitFor(std::unique_lock<env::Mutex>& lock, env::Deadline deadline, uint64_t reports);

  Node& node_;
  const std::shared_ptr<rpc::MasterApi> master_;
  const NodeAgentOptions options_;

  env::Mutex mutex_;
  env::CondVar changed_;
  bool stopping_ = false;
  bool registered_ = false;
  bool wanted_ = false;  // a report is wanted before the interval is over
  uint64_t reports_begun_ = 0;
  uint64_t reports_answered_ = 0;  // the newest begun report that was answered
  uint64_t reports_refused_ = 0;   // the newest begun report that waiting does not help; see last_
  uint64_t interval_ms_ = 500;
  Status last_;
  env::Thread thread_;
};

}  // namespace mooncake::node
