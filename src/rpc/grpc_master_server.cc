#include "rpc/grpc_master_server.h"

#include <fmt/format.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <atomic>
#include <chrono>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "env/clock.h"
#include "env/tcp_probe.h"
#include "mooncake/v1/master.grpc.pb.h"
#include "rpc/bearer.h"
#include "rpc/host_port.h"
#include "rpc/limits.h"
#include "rpc/status_proto.h"

namespace mooncake::rpc {
namespace {

// The token of "authorization: Bearer TOKEN"; empty when there is none, or more than one.
std::string_view TokenOf(const grpc::CallbackServerContext& context) {
  const auto [begin, end] = context.client_metadata().equal_range("authorization");
  if (begin == end || std::next(begin) != end) return {};
  return BearerTokenOf({begin->second.data(), begin->second.size()});
}

// Who was turned away, in the log: one a second, so that nobody fills the disk with it.
class RefusalLog {
 public:
  void Note(const char* rpc, const std::string& peer, const Status& why) {
    const int64_t second = env::SystemClock::Instance().MonotonicMs() / 1000;
    if (last_second_.exchange(second) == second) {
      unsaid_ += 1;
      return;
    }
    Log().warn("master: {} from {} refused: {} ({} more since the last such line)", rpc, peer,
               why.ToString(), unsaid_.exchange(0));
  }

 private:
  std::atomic<int64_t> last_second_ = -1;
  std::atomic<uint64_t> unsaid_ = 0;
};

class Service final : public v1::Master::CallbackService {
 public:
  Service(AsyncMaster& master, TokenFile* tokens) : master_(master), tokens_(tokens) {}

#define MOONCAKE_DEFINE(Name)                                                                   \
  grpc::ServerUnaryReactor* Name(grpc::CallbackServerContext* context,                          \
                                 const v1::Name##Request* request, v1::Name##Reply* reply)      \
      override {                                                                                \
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();                              \
    const Result<Caller> caller = CallerOf(#Name, *context);                                    \
    if (caller.ok()) {                                                                          \
      master_.Name(*caller, *request, reply, [reactor] { reactor->Finish(grpc::Status::OK); }); \
    } else {                                                                                    \
      SetStatus(reply->mutable_status(), caller.status());                                      \
      reactor->Finish(grpc::Status::OK);                                                        \
    }                                                                                           \
    return reactor;                                                                             \
  }
  MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE

 private:
  Result<Caller> CallerOf(const char* rpc, const grpc::CallbackServerContext& context) {
    if (tokens_ == nullptr) return Caller::Operator();
    Result<Caller> caller = tokens_->Authenticate(TokenOf(context));
    if (!caller.ok()) refusals_.Note(rpc, context.peer(), caller.status());
    return caller;
  }

  AsyncMaster& master_;
  TokenFile* const tokens_;
  RefusalLog refusals_;
};

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const ServerSecurity& security) {
  if (security.tls_cert_pem.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      security.tls_client_ca_pem.empty()
          ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
          : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = security.tls_client_ca_pem;
  options.pem_key_cert_pairs.push_back({security.tls_key_pem, security.tls_cert_pem});
  return grpc::SslServerCredentials(options);
}

// gRPC does not tell why it could not bind; the system says it again to whoever asks.
Status WhyNotBound(const HostPort& parts) {
  MC_RETURN_IF_ERROR(env::ProbeTcpListen(parts.host, parts.port));
  return Unavailable(
      fmt::format("cannot listen on {}:{}: gRPC gave no reason", parts.host, parts.port));
}

void LogFromGrpc(gpr_log_func_args* args) {
  Log().debug("grpc: {}:{}: {}", args->file, args->line, args->message);
}

}  // namespace

struct GrpcMasterServer::Parts {
  Parts(AsyncMaster& master, TokenFile* tokens) : service(master, tokens) {}

  Service service;
  std::unique_ptr<grpc::Server> server;
};

Result<std::unique_ptr<GrpcMasterServer>> GrpcMasterServer::Start(const std::string& listen,
                                                                  AsyncMaster& master,
                                                                  const ServerSecurity& security) {
  MC_ASSIGN_OR_RETURN(const HostPort parts_of, SplitHostPort(listen));
  auto parts = std::make_unique<Parts>(master, security.tokens);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetMaxSendMessageSize(kMessageBytesMax);
  // Otherwise a second Master could listen on the same port and take half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  int port = 0;
  builder.AddListeningPort(listen, CredentialsOf(security), &port);
  builder.RegisterService(&parts->service);
  parts->server = builder.BuildAndStart();
  if (parts->server == nullptr || port == 0) return WhyNotBound(parts_of);
  const std::string address = fmt::format("{}:{}", parts_of.host, port);
  return std::unique_ptr<GrpcMasterServer>(new GrpcMasterServer(address, std::move(parts)));
}

GrpcMasterServer::GrpcMasterServer(std::string address, std::unique_ptr<Parts> parts)
    : address_(std::move(address)), parts_(std::move(parts)) {}

GrpcMasterServer::~GrpcMasterServer() { Stop(); }

void GrpcMasterServer::Stop(int grace_ms) {
  if (parts_->server == nullptr) return;
  parts_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(grace_ms));
  parts_->server->Wait();
  parts_->server.reset();
}

void RouteGrpcLog() { gpr_set_log_function(&LogFromGrpc); }

}  // namespace mooncake::rpc
