#include "sim/network.h"

#include <algorithm>

namespace mooncake::sim {
namespace {

constexpr int64_t kHopNsMin = 20 * kMicrosecond;
constexpr int64_t kHopNsMax = 400 * kMicrosecond;

}  // namespace

void Network::Listen(const std::string& address, const std::string& host,
                     const std::shared_ptr<Process>& process, Handler handler) {
  listeners_[address] = Listener{host, process, std::move(handler)};
  process->on_crash.push_back([this, server = process.get()] { BreakConnections(server); });
}

void Network::StopListening(const std::string& address) { listeners_.erase(address); }

void Network::Send(const std::string& from, const std::string& to,
                   const std::function<void()>& arrive) {
  Dice& dice = simulation_.dice();
  const bool far = from != to;
  if (far && (cut_.contains(std::minmax(from, to)) || dice.Chance(faults.drop))) {
    simulation_.Note("message lost");
    return;
  }
  const int copies = far && dice.Chance(faults.duplicate) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    int64_t delay_ns = dice.Between(kHopNsMin, kHopNsMax);
    if (far && dice.Chance(faults.delay)) delay_ns = dice.Between(kHopNsMax, faults.delay_ns_max);
    simulation_.After(delay_ns, arrive);
  }
}

void Network::Finish(const std::shared_ptr<Exchange>& exchange, Status failure, Answer answer) {
  if (exchange->over) return;
  exchange->over = true;
  exchange->failure = std::move(failure);
  exchange->answer = std::move(answer);
  simulation_.Wake(exchange.get(), true);
}

void Network::Arrive(const std::string& from_host, const std::string& address,
                     const std::string& request, const std::shared_ptr<Exchange>& exchange) {
  const auto found = listeners_.find(address);
  const std::shared_ptr<Process> server =
      found == listeners_.end() ? nullptr : found->second.process.lock();
  if (server == nullptr || server->crashed()) {
    simulation_.After(kHopNsMin, [this, exchange, address] {
      Finish(exchange, NotFound("nobody listens at " + address), {});
    });
    return;
  }
  std::string seen = request;
  if (on_request) on_request(address, seen);
  simulation_.Note(seen);
  exchange->server = server;
  open_.push_back(exchange);
  const std::string to_host = found->second.host;
  Reply reply = [this, exchange, address, seen, from_host, to_host](
                    std::string bytes, const std::shared_ptr<env::UniqueFd>& fd) {
    if (simulation_.CutOff()) return;
    if (on_answer) on_answer(address, seen, bytes);
    if (on_descriptor && fd != nullptr && fd->valid()) on_descriptor(address, seen, fd->get());
    simulation_.Note(bytes);
    Send(to_host, from_host, [this, exchange, bytes = std::move(bytes), fd] {
      Finish(exchange, OkStatus(), {bytes, fd == nullptr ? env::UniqueFd() : std::move(*fd)});
    });
  };
  simulation_.Spawn(
      server.get(), server->name() + " handles a request",
      [handler = found->second.handler, seen, reply = std::move(reply)] { handler(seen, reply); });
}

Result<Network::Answer> Network::Call(const std::string& from_host, const std::string& address,
                                      const std::string& request, int64_t timeout_ns,
                                      const std::stop_token& cancel) {
  // Other tasks may run first, and the process may end here.
  simulation_.Yield();
  if (simulation_.CutOff()) return Unavailable("this process crashed");
  auto exchange = std::make_shared<Exchange>();
  const auto listener = listeners_.find(address);
  const std::string to_host = listener == listeners_.end() ? address : listener->second.host;
  Send(from_host, to_host, [this, from_host, address, request, exchange] {
    Arrive(from_host, address, request, exchange);
  });
  const int64_t end_ns = simulation_.MonotonicNs() + timeout_ns;
  const std::stop_callback wake(cancel,
                                [this, &exchange] { simulation_.Wake(exchange.get(), true); });
  while (!exchange->over) {
    if (cancel.stop_requested()) return Cancelled("given up by the caller");
    if (simulation_.CutOff()) return Unavailable("this process crashed");
    if (simulation_.MonotonicNs() >= end_ns) {
      return Unavailable("no answer from " + address + " in time");
    }
    simulation_.Park(exchange.get(), end_ns);
  }
  if (simulation_.CutOff()) return Unavailable("this process crashed");
  if (!exchange->failure.ok()) return exchange->failure;
  return std::move(exchange->answer);
}

void Network::BreakConnections(const Process* server) {
  std::erase_if(open_, [&](const std::weak_ptr<Exchange>& open) {
    const std::shared_ptr<Exchange> exchange = open.lock();
    if (exchange == nullptr || exchange->over) return true;
    const std::shared_ptr<Process> process = exchange->server.lock();
    if (process.get() != server) return false;
    simulation_.After(
        kHopNsMax, [this, exchange] { Finish(exchange, Unavailable("the connection broke"), {}); });
    return true;
  });
}

}  // namespace mooncake::sim
