// UnixNodeChannel and UnixNodeServer against each other.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <semaphore>
#include <thread>

#include "base/digest.h"
#include "env/memory_file.h"
#include "env/test_folder.h"
#include "rpc/status_proto.h"
#include "rpc/unix_node_channel.h"
#include "rpc/unix_node_server.h"

namespace mooncake::rpc {
namespace {

using testing::HasSubstr;

// Keeps METADATA objects in a map; an arena is a fresh memfd whose first byte is its id.
class MapHandler final : public NodeHandler {
 public:
  v1::NodeReply Handle(const v1::NodeRequest& request, const env::PeerCredentials& peer,
                       env::UniqueFd* fd_out) override {
    v1::NodeReply reply;
    std::lock_guard lock(mutex_);
    peers_.push_back(peer);
    switch (request.kind_case()) {
      case v1::NodeRequest::kOpenArena: {
        const v1::Grant& grant = request.open_arena().grant();
        auto file = env::MemoryFile::CreateAnonymous("arena", grant.arena_bytes());
        MC_CHECK(file.ok());
        const char id = static_cast<char>(grant.arena_id());
        MC_CHECK(::pwrite(file->fd(), &id, 1, 0) == 1);
        reply.set_arena_bytes(grant.arena_bytes() + arena_bytes_off_);
        *fd_out = env::UniqueFd(::dup(file->fd()));
        break;
      }
      case v1::NodeRequest::kWriteMetadata: {
        const v1::WriteMetadata& write = request.write_metadata();
        const Sha256Digest sha256 = Sha256Of(write.content());
        MC_CHECK(write.sha256() == std::string(sha256.begin(), sha256.end()));
        metadata_[write.name()] = write.content();
        break;
      }
      case v1::NodeRequest::kReadMetadata: {
        const auto found = metadata_.find(request.read_metadata().name());
        if (found == metadata_.end()) {
          SetStatus(reply.mutable_status(), NotFound("no " + request.read_metadata().name()));
        } else {
          reply.set_content(found->second);
        }
        break;
      }
      default:
        ++seals_;
        if (gate_ != nullptr) {
          entered_.release();
          gate_->acquire();
        }
    }
    return reply;
  }

  uint64_t arena_bytes_off_ = 0;
  int seals_ = 0;
  std::vector<env::PeerCredentials> peers_;
  std::binary_semaphore* gate_ = nullptr;
  std::binary_semaphore entered_{0};

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> metadata_;
};

class UnixNodeTest : public testing::Test {
 protected:
  std::unique_ptr<UnixNodeServer> MustStart(UnixNodeServerOptions options = {}) {
    auto server = UnixNodeServer::Start(path_, handler_, std::move(options));
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    return *std::move(server);
  }
  std::shared_ptr<UnixNodeChannel> MustConnect(UnixNodeChannelOptions options = {}) {
    auto channel = UnixNodeChannel::Connect(path_, options);
    EXPECT_TRUE(channel.ok()) << channel.status().ToString();
    return *std::move(channel);
  }
  // Waits until the server has that many connections.
  static bool WaitForConnections(const UnixNodeServer& server, size_t count) {
    const env::Deadline deadline = env::Deadline::AfterMs(20'000);
    while (server.connection_count() != count) {
      if (deadline.Expired()) return false;
      std::this_thread::yield();
    }
    return true;
  }

  env::TestFolder folder_;
  const std::string path_ = folder_ / "node.sock";
  MapHandler handler_;
};

v1::Grant ArenaGrant(uint64_t arena_id, uint64_t bytes) {
  v1::Grant grant;
  grant.set_arena_id(arena_id);
  grant.set_arena_bytes(bytes);
  return grant;
}

TEST_F(UnixNodeTest, FourCalls) {
  auto server = MustStart();
  auto channel = MustConnect();
  auto fd = channel->OpenArena(ArenaGrant(42, 8192));
  ASSERT_TRUE(fd.ok()) << fd.status().ToString();
  struct stat info {};
  ASSERT_EQ(::fstat(fd->get(), &info), 0);
  EXPECT_EQ(info.st_size, 8192);
  char id = 0;
  ASSERT_EQ(::pread(fd->get(), &id, 1, 0), 1);
  EXPECT_EQ(id, 42);
  EXPECT_NE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);

  std::string content(9 << 20, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 1000);
  ASSERT_TRUE(channel->WriteMetadata({}, "manifest", content).ok());
  EXPECT_EQ(channel->ReadMetadata({}, "manifest").value(), content);
  EXPECT_EQ(channel->ReadMetadata({}, "other").status(), NotFound("no other"));
  ASSERT_TRUE(channel->SealImport({}).ok());
  EXPECT_EQ(handler_.seals_, 1);
  ASSERT_FALSE(handler_.peers_.empty());
  EXPECT_EQ(handler_.peers_[0].pid, ::getpid());
  EXPECT_EQ(handler_.peers_[0].uid, ::geteuid());
}

TEST_F(UnixNodeTest, NoDescriptorIsLeaked) {
  auto server = MustStart();
  const size_t before = env::OpenFdCount();
  {
    auto channel = MustConnect();
    for (uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(channel->OpenArena(ArenaGrant(i, 4096)).ok());
  }
  ASSERT_TRUE(WaitForConnections(*server, 0));
  // The next accept reaps the thread and the socket of the one before.
  {
    auto another = MustConnect();
    ASSERT_TRUE(another->SealImport({}).ok());
  }
  ASSERT_TRUE(WaitForConnections(*server, 0));
  EXPECT_LE(env::OpenFdCount(), before + 1);
}

TEST_F(UnixNodeTest, AnArenaOfAnotherSizeIsCorrupt) {
  auto server = MustStart();
  handler_.arena_bytes_off_ = 4096;
  auto channel = MustConnect();
  const Status status = channel->OpenArena(ArenaGrant(1, 8192)).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("expected arena 1 of 8192 bytes, got 12288"));
}

TEST_F(UnixNodeTest, ARestartedServerIsFoundAgain) {
  auto server = MustStart();
  auto channel = MustConnect();
  ASSERT_TRUE(channel->WriteMetadata({}, "a", "1").ok());
  server.reset();
  Status status = channel->SealImport({});
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(path_));
  server = MustStart();
  EXPECT_EQ(channel->ReadMetadata({}, "a").value(), "1");
  server.reset();
  server = MustStart();
  EXPECT_EQ(channel->ReadMetadata({}, "a").value(), "1");
}

TEST_F(UnixNodeTest, NobodyThere) {
  auto channel = UnixNodeChannel::Connect(path_);
  ASSERT_FALSE(channel.ok());
  EXPECT_EQ(channel.status().code(), Code::kUnavailable);
  UnixNodeConnector connector;
  v1::NodeAddress address;
  address.set_node_id("n1");
  EXPECT_EQ(connector.Connect(address).status().code(), Code::kInvalidArgument);
  address.set_socket_path(path_);
  address.set_host_id("h1");
  const Status status = connector.Connect(address).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("node n1 of host h1"));
}

TEST_F(UnixNodeTest, ConnectionsAreBounded) {
  auto server = MustStart({.max_connections = 2});
  auto first = MustConnect();
  auto second = MustConnect();
  ASSERT_TRUE(first->SealImport({}).ok());
  ASSERT_TRUE(second->SealImport({}).ok());
  auto third = MustConnect();
  const Status status = third->SealImport({});
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_THAT(status.message(), HasSubstr("has 2 connections already"));
  first.reset();
  ASSERT_TRUE(WaitForConnections(*server, 1));
  EXPECT_TRUE(third->SealImport({}).ok());
  EXPECT_TRUE(second->SealImport({}).ok());
}

TEST_F(UnixNodeTest, AnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  for (const bool allowed : {false, true}) {
    UnixNodeServerOptions options{.socket_mode = 0666};
    if (allowed) options.allowed_uids = {65534};
    auto server = MustStart(std::move(options));
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setgroups(0, nullptr) != 0 || ::setuid(65534) != 0) ::_exit(100);
      auto channel = UnixNodeChannel::Connect(path_);
      ::_exit(channel.ok() ? static_cast<int>((*channel)->SealImport({}).code()) : 101);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(allowed ? Code::kOk : Code::kInvalidArgument));
  }
}

TEST_F(UnixNodeTest, GarbageEndsOnlyItsOwnConnection) {
  auto server = MustStart();
  auto good = MustConnect();
  ASSERT_TRUE(good->SealImport({}).ok());
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff"), std::string(3, '\x01')}) {
    auto bad = env::UnixSocket::Connect(path_, env::Deadline::AfterMs(5000));
    ASSERT_TRUE(bad.ok());
    ASSERT_TRUE(bad->SendFrame(bytes, env::Deadline::AfterMs(5000)).ok());
    auto frame = bad->ReceiveFrame(env::Deadline::AfterMs(20'000));
    EXPECT_FALSE(frame.ok() && frame->has_value());
  }
  EXPECT_TRUE(good->SealImport({}).ok());
}

TEST_F(UnixNodeTest, StopEndsIdleConnectionsAndWaitsForTheBusyOne) {
  auto server = MustStart();
  auto idle = MustConnect();
  ASSERT_TRUE(idle->SealImport({}).ok());
  std::binary_semaphore gate(0);
  handler_.gate_ = &gate;
  auto busy = MustConnect();
  std::thread caller([&] { (void)busy->SealImport({}); });
  handler_.entered_.acquire();
  // The lost reply makes the channel ask again, of nobody.
  std::thread stopper([&] { server->Stop(); });
  gate.release();
  stopper.join();
  caller.join();
  server.reset();
  EXPECT_EQ(handler_.seals_, 2);
}

TEST_F(UnixNodeTest, ManyThreadsOverOneChannelAndOverMany) {
  auto server = MustStart();
  auto shared = MustConnect();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      auto own = MustConnect();
      for (int i = 0; i < 50; ++i) {
        UnixNodeChannel& channel = i % 2 == 0 ? *own : *shared;
        const std::string name = "m" + std::to_string(t);
        const std::string content = std::to_string(i) + std::string(100 * t, 'x');
        wrong += !channel.WriteMetadata({}, name, content).ok();
        auto read = channel.ReadMetadata({}, name);
        wrong += !read.ok() || *read != content;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace mooncake::rpc
