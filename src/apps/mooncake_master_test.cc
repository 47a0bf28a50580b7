// The real program: start, SIGKILL, restart, clean end, refusals.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "env/deadline.h"
#include "env/test_folder.h"
#include "env/unique_fd.h"
#include "oplog/sqlite_log.h"
#include "rpc/grpc_master.h"
#include "rpc/status_proto.h"

namespace mooncake {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kStartMs = 60'000;

// One process of mooncake-master, killed with its owner.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    int out[2], err[2];
    MC_CHECK(::pipe2(out, O_CLOEXEC) == 0 && ::pipe2(err, O_CLOEXEC) == 0);
    arguments.insert(arguments.begin(), MOONCAKE_MASTER_PROGRAM);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out[1], 1);
      ::dup2(err[1], 2);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(out[1]);
    ::close(err[1]);
    out_ = env::UniqueFd(out[0]);
    err_ = env::UniqueFd(err[0]);
  }
  ~Program() {
    if (pid_ > 0) Kill();
  }

  // The first line of standard output; empty when it ends without one.
  std::string FirstLine() {
    const env::Deadline deadline = env::Deadline::AfterMs(kStartMs);
    std::string line;
    for (char c = 0; c != '\n';) {
      pollfd item{.fd = out_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&item, 1, deadline.PollTimeoutMs()) <= 0 || ::read(out_.get(), &c, 1) != 1)
        return "";
      line += c;
    }
    line.pop_back();
    return line;
  }

  // The address in the first line.
  std::string Address() {
    const std::string line = FirstLine();
    EXPECT_THAT(line, StartsWith("mooncake-master listening on "));
    const size_t begin = std::string("mooncake-master listening on ").size();
    if (line.size() < begin) return "";
    return line.substr(begin, line.find(' ', begin) - begin);
  }

  void Signal(int signal) { ::kill(pid_, signal); }
  // Its exit status; -1 if a signal ended it.
  int Wait() {
    int status = 0;
    MC_CHECK(::waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void Kill() {
    Signal(SIGKILL);
    (void)Wait();
  }
  // All of standard output and error until both end.
  std::string Output() {
    std::string text;
    for (const int fd : {out_.get(), err_.get()}) {
      char buffer[4096];
      ssize_t got;
      while ((got = ::read(fd, buffer, sizeof buffer)) > 0)
        text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  pid_t pid_ = -1;
  env::UniqueFd out_;
  env::UniqueFd err_;
};

class MooncakeMasterTest : public testing::Test {
 protected:
  std::vector<std::string> InFolder(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"--folder", path_, "--log-level", "warning"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  env::TestFolder folder_;
  const std::string path_ = folder_ / "master";
};

v1::RegisterNodeRequest Registration(int number) {
  v1::RegisterNodeRequest request;
  request.mutable_address()->set_node_id("n" + std::to_string(number));
  request.mutable_address()->set_instance_id("i");
  request.set_capacity_bytes(1 << 20);
  request.set_grant_key(std::string(32, 'k'));
  return request;
}

TEST_F(MooncakeMasterTest, WhatWasAnsweredSurvivesEveryKill) {
  std::string address, cluster_id;
  int known = 0;
  for (int round = 0; round < 4; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    Program program(InFolder());
    const std::string now = program.Address();
    if (round == 0) address = now;
    ASSERT_EQ(now, address);
    EXPECT_EQ(env::ReadFile(path_ + "/address").value(), address + "\n");
    rpc::GrpcMaster api(address);
    const v1::GetClusterReply cluster = api.GetCluster({});
    ASSERT_EQ(cluster.status().code(), 0u) << cluster.status().message();
    if (round == 0) cluster_id = cluster.cluster_id();
    EXPECT_EQ(cluster.cluster_id(), cluster_id);
    EXPECT_EQ(cluster.nodes_size(), known);
    for (int i = 0; i < 5 + round; ++i) {
      ASSERT_EQ(api.RegisterNode(Registration(known)).status().code(), 0u);
      ++known;
    }
    program.Kill();  // right after the last answer
  }
}

// A client in the middle of its calls only notices that one took longer.
TEST_F(MooncakeMasterTest, AClientLivesThroughARestart) {
  auto program = std::make_unique<Program>(InFolder());
  const std::string address = program->Address();
  std::atomic<bool> stop = false;
  std::atomic<int> answered = 0;
  std::string failure;
  std::thread client([&] {
    rpc::GrpcMaster api(address, {.total_timeout_ms = 60'000});
    for (int i = 0; !stop; ++i) {
      const v1::RegisterNodeReply reply = api.RegisterNode(Registration(i % 20));
      if (reply.status().code() != 0) {
        failure = reply.status().message();
        return;
      }
      ++answered;
    }
  });
  const env::Deadline deadline = env::Deadline::AfterMs(120'000);
  const auto wait_for = [&](int more) {
    const int wanted = answered + more;
    while (answered < wanted && !deadline.Expired()) std::this_thread::yield();
    return answered >= wanted;
  };
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(wait_for(20));
    program->Kill();
    program = std::make_unique<Program>(InFolder());
    EXPECT_EQ(program->Address(), address);
    EXPECT_TRUE(wait_for(1));
  }
  stop = true;
  client.join();
  EXPECT_EQ(failure, "");
}

TEST_F(MooncakeMasterTest, EndsInOrderOnASignal) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Program program(InFolder());
    ASSERT_NE(program.Address(), "");
    // The log is in use, and can be read meanwhile.
    auto log = oplog::SqliteLog::Open(path_ + "/log.db", {.read_only = true});
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    EXPECT_GE((*log)->LastSequence().value(), 1u);
    program.Signal(signal);
    EXPECT_EQ(program.Wait(), 0);
  }
}

TEST_F(MooncakeMasterTest, TwoInOneFolderAreRefused) {
  Program first(InFolder());
  ASSERT_NE(first.Address(), "");
  Program second(InFolder());
  EXPECT_EQ(second.Wait(), 3);
  const std::string output = second.Output();
  EXPECT_THAT(output, HasSubstr("UNAVAILABLE"));
  EXPECT_THAT(output, HasSubstr(path_));
}

TEST_F(MooncakeMasterTest, AnAddressThatIsTakenIsSaidSo) {
  std::string address;
  {
    Program program(InFolder());
    address = program.Address();
  }
  // Another store takes the port meanwhile.
  const std::string other = folder_ / "other";
  Program thief({"--folder", other, "--log-level", "off", "--listen", address});
  ASSERT_EQ(thief.Address(), address);
  Program program(InFolder());
  EXPECT_EQ(program.Wait(), 3);
  const std::string output = program.Output();
  EXPECT_THAT(output, HasSubstr(address));
  EXPECT_THAT(output, HasSubstr("Address already in use"));
  EXPECT_THAT(output, HasSubstr("give --listen another port"));
  // The operator may move it, to a port that was free a moment ago; it stays there.
  std::string free_address;
  {
    Program finder({"--folder", folder_ / "finder", "--log-level", "off"});
    free_address = finder.Address();
  }
  for (const auto& arguments : {InFolder({"--listen", free_address}), InFolder()}) {
    Program moved(arguments);
    EXPECT_EQ(moved.Address(), free_address);
  }
}

TEST_F(MooncakeMasterTest, BadUse) {
  const auto refused = [](std::vector<std::string> arguments, const char* message) {
    Program program(std::move(arguments));
    EXPECT_EQ(program.Wait(), 2);
    EXPECT_THAT(program.Output(), HasSubstr(message));
  };
  refused({}, "folder: expected a path");
  refused({"--folder", path_, "--no-such-flag"}, "no-such-flag");
  refused(InFolder({"--node-dead-after-ms", "5"}), "node_dead_after_ms");
  refused(InFolder({"--default-weight-preferred-residency", "warm"}), "got \"warm\"");
  refused({"--folder", path_, "--log-level", "loud"}, "loud");
  refused(InFolder({"--config", folder_ / "absent.yaml"}), "absent.yaml");
  const std::string config = folder_ / "master.yaml";
  ASSERT_TRUE(env::WriteFileDurably(config, "weight_migration_max_members_per_round: 0\n").ok());
  refused(InFolder({"--config", config}), "weight_migration_max_members_per_round");
  EXPECT_FALSE(env::PathExists(path_).value());

  Program unable(InFolder({"--listen", "127.0.0.1"}));
  EXPECT_EQ(unable.Wait(), 1);
  EXPECT_THAT(unable.Output(), HasSubstr("expected host:port, got \"127.0.0.1\""));
}

TEST_F(MooncakeMasterTest, FileAndFlags) {
  const std::string config = folder_ / "master.yaml";
  ASSERT_TRUE(env::WriteFileDurably(config, "report_interval_ms: 70\nlog_level: 'off'\n").ok());
  Program program({"--folder", path_, "--config", config, "--node-dead-after-ms", "200"});
  rpc::GrpcMaster api(program.Address());
  EXPECT_EQ(api.RegisterNode(Registration(1)).report_interval_ms(), 70u);
}

TEST_F(MooncakeMasterTest, ADamagedLogIsNotServed) {
  {
    Program program(InFolder());
    rpc::GrpcMaster api(program.Address());
    ASSERT_EQ(api.RegisterNode(Registration(1)).status().code(), 0u);
    program.Signal(SIGTERM);
    ASSERT_EQ(program.Wait(), 0);
  }
  std::string bytes = env::ReadFile(path_ + "/log.db").value();
  const size_t at = bytes.rfind("n1");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'm';
  ASSERT_TRUE(env::WriteFileDurably(path_ + "/log.db", bytes).ok());
  Program program(InFolder());
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_THAT(program.Output(), HasSubstr("CORRUPT"));
}

TEST_F(MooncakeMasterTest, Version) {
  Program program({"--version"});
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.Output(), StartsWith("mooncake-master 0."));
}

}  // namespace
}  // namespace mooncake
