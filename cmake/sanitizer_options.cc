// Linked into every program of a sanitizer build, so that it runs alike under CTest, by hand and as
// a child of another.
#if defined(__SANITIZE_THREAD__)
#define MOONCAKE_SANITIZER_HOOK extern "C" __attribute__((visibility("default"), used))

// gRPC, abseil and protobuf come without instrumentation. What they lock is invisible, so their
// accesses through intercepted functions (memcpy, free) must be invisible as well.
MOONCAKE_SANITIZER_HOOK const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1";
}
#endif
