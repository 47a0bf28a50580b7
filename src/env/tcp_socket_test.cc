#include "env/tcp_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace mooncake::env {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Deadline Soon() { return Deadline::AfterMs(20'000); }

TcpListener Listen(const Interrupter* interrupter = nullptr) {
  auto listener = TcpListener::Listen("127.0.0.1:0", interrupter);
  MC_CHECK(listener.ok());
  return *std::move(listener);
}

TEST(TcpSocketTest, FramesBothWays) {
  const TcpListener listener = Listen();
  EXPECT_THAT(listener.address(), StartsWith("127.0.0.1:"));
  EXPECT_NE(listener.port(), 0);
  EXPECT_FALSE(listener.wildcard());
  auto client = TcpSocket::Connect(listener.address(), Soon());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  auto server = listener.Accept(Soon());
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(client->PeerName(), listener.address());
  EXPECT_THAT(server->PeerName(), StartsWith("127.0.0.1:"));
  for (const int fd : {client->fd(), server->fd()}) {
    int on = 0;
    socklen_t length = sizeof on;
    ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &length), 0);
    EXPECT_EQ(on, 1);
  }
  std::string large(20 << 20, '\0');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7 + i / 1000);
  std::thread echo([&] {
    for (int i = 0; i < 2; ++i) {
      const auto frame = server->ReceiveReply(Soon());
      ASSERT_TRUE(frame.ok()) << frame.status().ToString();
      ASSERT_TRUE(server->SendFrame(frame->bytes, Soon()).ok());
    }
  });
  for (const std::string& bytes : {large, std::string()}) {
    ASSERT_TRUE(client->SendFrame(bytes, Soon()).ok());
    const auto back = client->ReceiveReply(Soon());
    ASSERT_TRUE(back.ok()) << back.status().ToString();
    EXPECT_TRUE(back->bytes == bytes);
  }
  echo.join();
}

TEST(TcpSocketTest, WhatOnlyAUnixSocketCan) {
  const TcpListener listener = Listen();
  auto client = TcpSocket::Connect(listener.address(), Soon());
  ASSERT_TRUE(client.ok());
  const int fds[1] = {0};
  EXPECT_EQ(client->SendFrame("x", Soon(), fds).code(), Code::kUnsupported);
  EXPECT_EQ(client->Peer().status().code(), Code::kUnsupported);
  // Nothing was sent.
  auto server = listener.Accept(Soon());
  ASSERT_TRUE(client->SendFrame("y", Soon()).ok());
  EXPECT_EQ(server->ReceiveReply(Soon())->bytes, "y");
}

TEST(TcpSocketTest, ATornFrameIsTheEnd) {
  const TcpListener listener = Listen();
  auto client = TcpSocket::Connect(listener.address(), Soon());
  auto server = listener.Accept(Soon());
  ASSERT_TRUE(client.ok() && server.ok());
  ASSERT_EQ(::send(client->fd(), "\x64\0\0\0abc", 7, 0), 7);
  client->Shutdown();
  const Status torn = server->ReceiveFrame(Soon()).status();
  EXPECT_EQ(torn.code(), Code::kUnavailable);
  EXPECT_THAT(torn.message(), HasSubstr("got 3 of 100 bytes"));
  EXPECT_THAT(server->ReceiveFrame(Soon()).status().message(), HasSubstr("an earlier frame"));
}

TEST(TcpSocketTest, ALengthOverTheLimitIsRefused) {
  const TcpListener listener = Listen();
  auto client = TcpSocket::Connect(listener.address(), Soon());
  auto server = listener.Accept(Soon());
  ASSERT_TRUE(client.ok() && server.ok());
  ASSERT_EQ(::send(client->fd(), "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
  const Status refused = server->ReceiveFrame(Soon()).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("at most 268435456 bytes"));
}

TEST(TcpSocketTest, WhereNobodyListens) {
  std::string address;
  {
    const TcpListener gone = Listen();
    address = gone.address();
  }
  const Status refused = TcpSocket::Connect(address, Soon()).status();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("connect to " + address));
  for (const char* bad : {"", ":1", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000",
                          "127.0.0.1:0", "::1:80"}) {
    EXPECT_EQ(TcpSocket::Connect(bad, Soon()).status().code(), Code::kInvalidArgument) << bad;
  }
}

// A host that does not answer at all: its queue of connections is full, and it takes none out.
TEST(TcpSocketTest, ConnectingEndsInTime) {
  const UniqueFd full(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(full.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(full.get(), 0), 0);
  ASSERT_EQ(::getsockname(full.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string name = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  std::vector<TcpSocket> waiting;
  Status late;
  for (int i = 0; i < 20 && late.ok(); ++i) {
    auto one = TcpSocket::Connect(name, Deadline::AfterMs(100));
    late = one.status();
    if (one.ok()) waiting.push_back(*std::move(one));
  }
  EXPECT_EQ(late.code(), Code::kUnavailable);
  EXPECT_THAT(late.message(), HasSubstr("the deadline ran out"));
  auto interrupter = Interrupter::Create();
  ASSERT_TRUE(interrupter.ok());
  std::thread stopper([&] { interrupter->Interrupt(); });
  EXPECT_EQ(TcpSocket::Connect(name, Deadline::Infinite(), &*interrupter).status().code(),
            Code::kCancelled);
  stopper.join();
}

TEST(TcpSocketTest, AnInterruptEndsTheWaitForConnections) {
  auto interrupter = Interrupter::Create();
  const TcpListener listener = Listen(&*interrupter);
  std::thread stopper([&] { interrupter->Interrupt(); });
  EXPECT_EQ(listener.Accept(Deadline::Infinite()).status().code(), Code::kCancelled);
  stopper.join();
}

TEST(TcpSocketTest, AnAddressThatCannotBeHad) {
  const TcpListener listener = Listen();
  const Status taken = TcpListener::Listen(listener.address()).status();
  EXPECT_EQ(taken.code(), Code::kUnavailable);
  EXPECT_THAT(taken.message(), HasSubstr("Address already in use"));
  const auto all = TcpListener::Listen("0.0.0.0:0");
  ASSERT_TRUE(all.ok());
  EXPECT_TRUE(all->wildcard());
}

}  // namespace
}  // namespace mooncake::env
