#include "rpc/grpc_master.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>

#include "env/clock.h"
#include "mooncake/v1/master.grpc.pb.h"
#include "rpc/limits.h"
#include "rpc/status_proto.h"
#include "rpc/tls_probe.h"

namespace mooncake::rpc {
namespace {

constexpr int64_t kFirstPauseMs = 20;
constexpr int64_t kLongestPauseMs = 500;
// For finding out why there is no channel.
constexpr int64_t kProbeMs = 1000;

template <class Request>
concept Command = requires(const Request& request) {
  request.command();
};

int64_t NowMs() { return env::SystemClock::Instance().MonotonicMs(); }

std::chrono::system_clock::time_point InMs(int64_t ms) {
  return std::chrono::system_clock::now() + std::chrono::milliseconds(ms);
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetMaxSendMessageSize(kMessageBytesMax);
  // A Master that restarts is back within a second; gRPC's own pauses begin at one.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // The Master is inside the cluster; a proxy for the internet must not be asked.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const Credentials& credentials) {
  if (!credentials.tls()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = credentials.ca_pem;
  options.pem_cert_chain = credentials.cert_pem;
  options.pem_private_key = credentials.key_pem;
  return grpc::SslCredentials(options);
}

// Whether another attempt may end otherwise. The rest is about the message or this program.
bool MayPass(grpc::StatusCode code) {
  return code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::DEADLINE_EXCEEDED ||
         code == grpc::StatusCode::CANCELLED;
}

Status OfGrpc(const grpc::Status& status) {
  const std::string message =
      fmt::format("{} (gRPC {})", status.error_message(), static_cast<int>(status.error_code()));
  switch (status.error_code()) {
    case grpc::StatusCode::UNIMPLEMENTED:
      return Unsupported(message);
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return Exhausted(message);
    default:
      return MayPass(status.error_code()) ? Unavailable(message) : Internal(message);
  }
}

}  // namespace

class GrpcMaster::Channel {
 public:
  Channel(const std::string& address, GrpcMasterOptions options, const Credentials& credentials)
      : address_(address),
        options_(options),
        credentials_(credentials),
        may_not_ask_(CheckMayBeShown(credentials, address)),
        channel_(
            grpc::CreateCustomChannel(address, ChannelCredentialsOf(credentials), Arguments())),
        stub_(v1::Master::NewStub(channel_)) {}

  template <class Request, class Reply>
  Reply Call(const char* name, const Request& request,
             grpc::Status (v1::Master::Stub::*method)(grpc::ClientContext*, const Request&,
                                                      Reply*)) {
    const int64_t end_ms = NowMs() + options_.total_timeout_ms;
    // Some attempt may have reached the Master without our hearing its answer.
    bool in_doubt = false;
    Status last;
    for (int64_t pause_ms = kFirstPauseMs;; pause_ms = std::min(2 * pause_ms, kLongestPauseMs)) {
      if (last = may_not_ask_; !last.ok()) break;
      if (WaitConnected(end_ms, &last)) {
        Reply reply;
        const grpc::Status status = Attempt(request, method, end_ms, &reply);
        if (status.ok()) {
          last = StatusFromProto(reply.status());
          if (last.code() != Code::kUnavailable) return reply;
          // The Master decided nothing. It did not look for an earlier attempt either.
        } else {
          last = OfGrpc(status);
          if (!MayPass(status.error_code())) break;
          in_doubt = true;
        }
      } else if (last.code() != Code::kUnavailable) {
        break;
      }
      if (NowMs() + pause_ms >= end_ms || !Pause(pause_ms)) break;
    }
    Reply refusal;
    SetStatus(refusal.mutable_status(), Failure(name, last, in_doubt && Command<Request>));
    return refusal;
  }

  void Cancel() {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (grpc::ClientContext* context : in_flight_) context->TryCancel();
    wake_.notify_all();
  }

 private:
  template <class Request, class Reply>
  grpc::Status Attempt(const Request& request,
                       grpc::Status (v1::Master::Stub::*method)(grpc::ClientContext*,
                                                                const Request&, Reply*),
                       int64_t end_ms, Reply* reply) {
    grpc::ClientContext context;
    if (!credentials_.token.empty()) {
      context.AddMetadata("authorization", "Bearer " + credentials_.token);
    }
    const int64_t left_ms = std::max<int64_t>(end_ms - NowMs(), 1);
    context.set_deadline(InMs(std::min<int64_t>(left_ms, options_.attempt_timeout_ms)));
    {
      std::lock_guard lock(mutex_);
      if (cancelled_) return {grpc::StatusCode::CANCELLED, "cancelled"};
      in_flight_.insert(&context);
    }
    grpc::Status status = (stub_.get()->*method)(&context, request, reply);
    std::lock_guard lock(mutex_);
    in_flight_.erase(&context);
    return status;
  }

  // In short steps, so that Cancel is heard.
  bool WaitConnected(int64_t end_ms, Status* why_not) {
    const int64_t until_ms = std::min(end_ms, NowMs() + options_.connect_timeout_ms);
    bool asked_why = false;
    for (;;) {
      const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
      if (state == GRPC_CHANNEL_READY) return true;
      const int64_t left_ms = until_ms - NowMs();
      if (state == GRPC_CHANNEL_TRANSIENT_FAILURE && !asked_why && left_ms > 0) {
        asked_why = true;
        *why_not = WhyNoChannel(address_, credentials_,
                                env::Deadline::AfterMs(std::min(left_ms, kProbeMs)));
        if (!why_not->ok()) return false;
      }
      if (left_ms <= 0 || cancelled()) {
        *why_not =
            Unavailable(fmt::format("no connection within {} ms", options_.connect_timeout_ms));
        return false;
      }
      channel_->WaitForConnected(InMs(std::min<int64_t>(left_ms, 50)));
    }
  }

  bool cancelled() {
    std::lock_guard lock(mutex_);
    return cancelled_;
  }

  // false: cancelled.
  bool Pause(int64_t ms) {
    std::unique_lock lock(mutex_);
    return !wake_.wait_for(lock, std::chrono::milliseconds(ms), [this] { return cancelled_; });
  }

  Status Failure(const char* name, const Status& last, bool in_doubt) {
    const std::string message = fmt::format("{} at Master {}: {}", name, address_, last.message());
    if (in_doubt) return OutcomeUnknown(message + "; the command may have been executed");
    if (cancelled()) return Cancelled(message);
    return {last.code(), message};
  }

  const std::string address_;
  const GrpcMasterOptions options_;
  const Credentials credentials_;
  const Status may_not_ask_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Master::Stub> stub_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool cancelled_ = false;
  std::set<grpc::ClientContext*> in_flight_;
};

GrpcMaster::GrpcMaster(const std::string& address, GrpcMasterOptions options,
                       const Credentials& credentials)
    : channel_(std::make_unique<Channel>(address, options, credentials)) {}

GrpcMaster::~GrpcMaster() = default;

void GrpcMaster::Cancel() { channel_->Cancel(); }

#define MOONCAKE_DEFINE(Name)                                                           \
  v1::Name##Reply GrpcMaster::Name(const v1::Name##Request& request) {                  \
    return channel_->Call<v1::Name##Request, v1::Name##Reply>(#Name, request,           \
                                                              &v1::Master::Stub::Name); \
  }
MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE

}  // namespace mooncake::rpc
