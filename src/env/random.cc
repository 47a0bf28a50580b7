#include "env/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "env/world.h"

namespace mooncake::env {

uint64_t RandomSource::RandomU64() {
  const std::string bytes = RandomBytes(sizeof(uint64_t));
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

SystemRandom& SystemRandom::Instance() {
  static SystemRandom source;
  return source;
}

std::string SystemRandom::RandomBytes(size_t bytes) {
  if (World* world = World::Current()) return world->RandomBytes(bytes);
  std::string random(bytes, '\0');
  size_t filled = 0;
  while (filled < bytes) {
    const ssize_t got = getrandom(random.data() + filled, bytes - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    MC_CHECK(got > 0);
    filled += static_cast<size_t>(got);
  }
  return random;
}

std::string SeededRandom::RandomBytes(size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::string random(bytes, '\0');
  for (size_t i = 0; i < bytes;) {
    for (uint64_t word = engine_(), n = 0; n < sizeof word && i < bytes; ++n, ++i, word >>= 8) {
      random[i] = static_cast<char>(word & 0xff);
    }
  }
  return random;
}

}  // namespace mooncake::env
