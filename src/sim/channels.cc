#include "sim/channels.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "rpc/status_proto.h"
#include "rpc/wire_node_channel.h"

namespace mooncake::sim {
namespace {

// The same bytes for the same message in every run: maps have an order.
template <class Message>
std::string Bytes(const Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    MC_CHECK(message.SerializeToCodedStream(&coded));
  }
  return bytes;
}

template <class Request>
concept Command = requires(const Request& request) {
  request.command();
};

class MasterOverNetwork final : public rpc::MasterApi {
 public:
  MasterOverNetwork(Network& network, std::string host, int64_t timeout_ms)
      : network_(network), host_(std::move(host)), timeout_ms_(timeout_ms) {}

#define MOONCAKE_DEFINE(Name)                                       \
  v1::Name##Reply Name(const v1::Name##Request& request) override { \
    return Call<v1::Name##Reply>(#Name, request);                   \
  }
  MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE

 private:
  // As GrpcMaster words the outcomes.
  template <class Reply, class Request>
  Reply Call(const std::string& method, const Request& request) {
    Reply reply;
    Result<Network::Answer> answer = network_.Call(
        host_, kMasterAddress, method + "\n" + Bytes(request), timeout_ms_ * kMillisecond);
    if (answer.ok()) {
      MC_CHECK(reply.ParseFromString(answer->bytes));
      return reply;
    }
    const bool refused = answer.status().code() == Code::kNotFound;
    const Code code = !refused && Command<Request> ? Code::kOutcomeUnknown : Code::kUnavailable;
    rpc::SetStatus(reply.mutable_status(),
                   Status(code, method + " at the Master: " + answer.status().message()));
    return reply;
  }

  Network& network_;
  const std::string host_;
  const int64_t timeout_ms_;
};

// A request and its reply while the Master has them.
template <class Request, class Reply>
struct InFlight {
  Request request;
  Reply reply;
};

class NodeOverNetwork final : public rpc::WireNodeChannel {
 public:
  NodeOverNetwork(Network& network, std::string host, std::string node_id)
      : network_(network), host_(std::move(host)), node_id_(std::move(node_id)) {}

 private:
  std::string Describe() const override { return "node " + node_id_; }

  Result<Answer> Call(v1::NodeRequest* request, const rpc::CallBounds& bounds) override {
    constexpr int64_t kLongestMs = 60'000;
    const int64_t timeout_ms = std::min(bounds.deadline.RemainingMs(), kLongestMs);
    Result<Network::Answer> got = network_.Call(host_, NodeAddressOf(node_id_), Bytes(*request),
                                                timeout_ms * kMillisecond, bounds.cancel);
    if (got.status().code() == Code::kNotFound) {
      return Unavailable(Describe() + ": " + got.status().message());
    }
    if (!got.ok()) return got.status().WithContext(Describe());
    Answer answer;
    MC_CHECK(answer.reply.ParseFromString(got->bytes));
    if (got->fd.valid()) answer.fds.push_back(std::move(got->fd));
    const Status refusal = rpc::StatusFromProto(answer.reply.status());
    if (refusal.ok()) return answer;
    return refusal;
  }

  Network& network_;
  const std::string host_;
  const std::string node_id_;
};

class NodesOverNetwork final : public rpc::NodeConnector {
 public:
  NodesOverNetwork(Network& network, std::string host)
      : network_(network), host_(std::move(host)) {}
  Result<std::shared_ptr<rpc::NodeChannel>> Connect(const v1::NodeAddress& address,
                                                    const rpc::CallBounds&) override {
    return std::shared_ptr<rpc::NodeChannel>(
        std::make_shared<NodeOverNetwork>(network_, host_, address.node_id()));
  }

 private:
  Network& network_;
  const std::string host_;
};

}  // namespace

std::shared_ptr<rpc::MasterApi> ConnectMaster(Network& network, std::string host,
                                              int64_t timeout_ms) {
  return std::make_shared<MasterOverNetwork>(network, std::move(host), timeout_ms);
}

Network::Handler ServeMaster(std::function<std::shared_ptr<rpc::AsyncMaster>()> master) {
  return [master = std::move(master)](const std::string& message, const Network::Reply& reply) {
    const size_t end = message.find('\n');
    MC_CHECK(end != std::string::npos);
    const std::string method = message.substr(0, end);
    const std::string body = message.substr(end + 1);
    // Kept until the answer: the process may stop serving meanwhile.
    const std::shared_ptr<rpc::AsyncMaster> serving = master();
    if (serving == nullptr) return;
#define MOONCAKE_SERVE(Name)                                                      \
  if (method == #Name) {                                                          \
    auto call = std::make_shared<InFlight<v1::Name##Request, v1::Name##Reply>>(); \
    MC_CHECK(call->request.ParseFromString(body));                                \
    serving->Name(rpc::Caller::Operator(), call->request, &call->reply,           \
                  [call, reply] { reply(Bytes(call->reply), nullptr); });         \
    return;                                                                       \
  }
    MOONCAKE_MASTER_RPCS(MOONCAKE_SERVE)
#undef MOONCAKE_SERVE
    MC_CHECK(false);
  };
}

std::shared_ptr<rpc::NodeConnector> ConnectNodes(Network& network, std::string host) {
  return std::make_shared<NodesOverNetwork>(network, std::move(host));
}

Network::Handler ServeNode(std::function<std::shared_ptr<rpc::NodeHandler>()> node) {
  return [node = std::move(node)](const std::string& message, const Network::Reply& reply) {
    const std::shared_ptr<rpc::NodeHandler> serving = node();
    if (serving == nullptr) return;
    v1::NodeRequest request;
    MC_CHECK(request.ParseFromString(message));
    env::UniqueFd fd;
    const v1::NodeReply answer = serving->Handle(request, {}, &fd);
    reply(Bytes(answer), std::make_shared<env::UniqueFd>(std::move(fd)));
  };
}

}  // namespace mooncake::sim
