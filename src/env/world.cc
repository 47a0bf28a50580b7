#include "env/world.h"

#include <utility>

namespace mooncake::env {

thread_local constinit World* World::current_ = nullptr;

WorldScope::WorldScope(World& world) : outer_(std::exchange(World::current_, &world)) {}

WorldScope::~WorldScope() { World::current_ = outer_; }

}  // namespace mooncake::env
