// Messages between simulated processes: requests and their answers, late, lost, doubled or torn
// from each other.
//
// Owns what is on its way. A request reaches whoever listens at its address when it arrives; it is
// handled on a task of that process, perhaps twice. Between two hosts all faults apply; within one
// (a Unix socket) only time passes and processes die. Threads: all on one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>

#include "base/status.h"
#include "env/unique_fd.h"
#include "sim/simulation.h"

namespace mooncake::sim {

struct NetworkFaults {
  // Per million messages between hosts.
  uint32_t drop = 0;
  uint32_t duplicate = 0;
  uint32_t delay = 0;  // far beyond the others, so that later ones overtake it
  int64_t delay_ns_max = 5 * kSecond;
};

class Network {
 public:
  struct Answer {
    std::string bytes;
    env::UniqueFd fd;
  };
  using Reply = std::function<void(std::string bytes, std::shared_ptr<env::UniqueFd> fd)>;
  // `reply` may be called later, from any task, at most once.
  using Handler = std::function<void(const std::string& request, Reply reply)>;

  explicit Network(Simulation& simulation) : simulation_(simulation) {}

  NetworkFaults faults;
  // Sees every request as it arrives, and every answer as it is sent; may change both.
  std::function<void(const std::string& address, std::string& request)> on_request;
  std::function<void(const std::string& address, const std::string& request, std::string& answer)>
      on_answer;
  // Sees every descriptor that travels with an answer.
  std::function<void(const std::string& address, const std::string& request, int fd)> on_descriptor;

  // From now on `process`, of `host`, is what `address` reaches, until it crashes or StopListening.
  void Listen(const std::string& address, const std::string& host,
              const std::shared_ptr<Process>& process, Handler handler);
  void StopListening(const std::string& address);

  // From the running task's process on `from_host`. NOT_FOUND: refused, so it was certainly not
  // handled. UNAVAILABLE: no answer until `timeout_ns` passed, or the connection broke: nobody
  // knows. CANCELLED: `cancel`.
  Result<Answer> Call(const std::string& from_host, const std::string& address,
                      const std::string& request, int64_t timeout_ns,
                      const std::stop_token& cancel = {});

  // No message passes between the two hosts until Heal.
  void Cut(const std::string& a, const std::string& b) { cut_.insert(std::minmax(a, b)); }
  void Heal() { cut_.clear(); }

 private:
  struct Listener {
    std::string host;
    std::weak_ptr<Process> process;
    Handler handler;
  };
  // What a caller waits for.
  struct Exchange {
    bool over = false;
    Status failure;
    Answer answer;
    std::weak_ptr<Process> server;
  };

  // Runs `arrive` when the message does: never, once or twice.
  void Send(const std::string& from, const std::string& to, const std::function<void()>& arrive);
  void Arrive(const std::string& from_host, const std::string& address, const std::string& request,
              const std::shared_ptr<Exchange>& exchange);
  void Finish(const std::shared_ptr<Exchange>& exchange, Status failure, Answer answer);
  void BreakConnections(const Process* server);

  Simulation& simulation_;
  std::map<std::string, Listener> listeners_;
  std::set<std::pair<std::string, std::string>> cut_;
  std::vector<std::weak_ptr<Exchange>>
      open_;  // that a server has; those that are over go now and then
};

}  // namespace mooncake::sim
