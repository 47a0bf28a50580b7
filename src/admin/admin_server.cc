#include "admin/admin_server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <atomic>
#include <string_view>
#include <thread>
#include <utility>

#include "admin/metrics.h"
#include "admin/observation.h"
#include "admin/status_page.h"
#include "base/log.h"
#include "env/sync.h"
#include "env/tcp_probe.h"
#include "rpc/bearer.h"
#include "rpc/host_port.h"

namespace mooncake::admin {
namespace {

constexpr size_t kThreads = 4;
constexpr time_t kSilenceSeconds = 2;   // of a connection, before and within a request
constexpr size_t kBodyBytesMax = 1024;  // no page takes one
constexpr char kText[] = "text/plain; charset=utf-8";
constexpr char kMetricsText[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr char kJson[] = "application/json";

int HttpStatusOf(const Status& status) {
  switch (status.code()) {
    case Code::kPermissionDenied:
      return 403;
    case Code::kUnavailable:
    case Code::kExhausted:
      return 503;
    default:
      return 500;
  }
}

void Refuse(httplib::Response& response, int http_status, const Status& why) {
  response.status = http_status;
  response.set_content(why.ToString() + "\n", kText);
}

// The library's own are for sharing a port among processes: a second Master would take half of the
// scrapes. This one is for binding again at once after a restart.
void SetSocketOptions(socket_t socket) {
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

std::unique_ptr<httplib::Server> MakeServer(const AdminOptions& options) {
  if (options.tls_cert.empty()) return std::make_unique<httplib::Server>();
  return std::make_unique<httplib::SSLServer>(
      options.tls_cert.c_str(), options.tls_key.c_str(),
      options.tls_client_ca.empty() ? nullptr : options.tls_client_ca.c_str());
}

// [::1] as the system writes it.
std::string Unbracketed(const std::string& host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

// The port bound. The library does not tell why it could not; the system says it again.
Result<int> Bind(httplib::Server& server, const rpc::HostPort& listen) {
  const int wanted = std::stoi(listen.port);  // SplitHostPort checked it
  const std::string host = Unbracketed(listen.host);
  if (wanted == 0) {
    const int port = server.bind_to_any_port(host);
    if (port > 0) return port;
  } else if (server.bind_to_port(host, wanted)) {
    return wanted;
  }
  MC_RETURN_IF_ERROR(env::ProbeTcpListen(listen.host, listen.port));
  return Unavailable(fmt::format("cannot listen on {}:{}", listen.host, listen.port));
}

}  // namespace

struct AdminServer::Parts {
  Parts(const AdminOptions& options, rpc::AsyncMaster& its_master)
      : server(MakeServer(options)), master(its_master), tokens(options.tokens) {}

  using Page = Result<std::string> (*)(const Observation& seen);
  void Serve(const char* path, const char* content_type, Page page) {
    server->Get(path, [this, content_type, page](const httplib::Request& request,
                                                 httplib::Response& response) {
      const Result<rpc::Caller> caller = CallerOf(request);
      if (!caller.ok()) {
        response.set_header("WWW-Authenticate", "Bearer");
        return Refuse(response, 401, caller.status());
      }
      rpc::BlockingMaster api(master, *caller);
      const Result<Observation> seen = Observe(api);
      if (!seen.ok()) return Refuse(response, HttpStatusOf(seen.status()), seen.status());
      const Result<std::string> text = page(*seen);
      if (!text.ok()) return Refuse(response, HttpStatusOf(text.status()), text.status());
      response.set_content(*text, content_type);
    });
  }

  Result<rpc::Caller> CallerOf(const httplib::Request& request) const {
    if (tokens == nullptr) return rpc::Caller::Operator();
    // Two of them are none: who reads the first and who reads the last would not agree.
    if (request.get_header_value_count("Authorization") != 1) return tokens->Authenticate({});
    const std::string header = request.get_header_value("Authorization");
    return tokens->Authenticate(rpc::BearerTokenOf(header));
  }

  void Configure() {
    server->set_socket_options(SetSocketOptions);
    server->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server->set_keep_alive_max_count(1);
    server->set_keep_alive_timeout(kSilenceSeconds);
    server->set_read_timeout(kSilenceSeconds);
    server->set_write_timeout(kSilenceSeconds);
    server->set_payload_max_length(kBodyBytesMax);
    Serve("/metrics", kMetricsText,
          [](const Observation& seen) -> Result<std::string> { return MetricsText(seen); });
    Serve("/status", kJson, StatusJson);
    server->set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (response.body.empty() && response.status == 404) {
        response.set_content("here are /metrics and /status\n", kText);
      }
    });
  }

  std::unique_ptr<httplib::Server> server;
  rpc::AsyncMaster& master;
  rpc::TokenFile* const tokens;
  std::atomic<bool> ended = false;
  env::Thread listener;
};

Result<std::unique_ptr<AdminServer>> AdminServer::Start(const AdminOptions& options,
                                                        rpc::AsyncMaster& master) {
  MC_ASSIGN_OR_RETURN(const rpc::HostPort listen, rpc::SplitHostPort(options.listen));
  auto parts = std::make_unique<Parts>(options, master);
  if (!parts->server->is_valid()) {
    return InvalidArgument("tls_cert " + options.tls_cert + ", tls_key " + options.tls_key +
                           ", tls_client_ca " + options.tls_client_ca +
                           ": the HTTP port cannot use them");
  }
  parts->Configure();
  MC_ASSIGN_OR_RETURN(const int port, Bind(*parts->server, listen));
  std::string url =
      fmt::format("{}://{}:{}", options.tls_cert.empty() ? "http" : "https", listen.host, port);
  parts->listener = env::Thread([its = parts.get()] {
    if (!its->server->listen_after_bind()) Log().error("master: the HTTP port is served no more");
    its->ended = true;
  });
  // Not before it accepts: Stop would find nothing to end.
  while (!parts->server->is_running() && !parts->ended) std::this_thread::yield();
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(url), std::move(parts)));
}

AdminServer::AdminServer(std::string url, std::unique_ptr<Parts> parts)
    : url_(std::move(url)), parts_(std::move(parts)) {}

AdminServer::~AdminServer() { Stop(); }

void AdminServer::Stop() {
  if (!parts_->listener.joinable()) return;
  parts_->server->stop();
  parts_->listener.join();
}

}  // namespace mooncake::admin
