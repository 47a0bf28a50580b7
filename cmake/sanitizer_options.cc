// Linked into every program of a sanitizer build, so that it reports alike under CTest, by hand and
// as the child of a test. The variables TSAN_OPTIONS, ASAN_OPTIONS and UBSAN_OPTIONS still win.
extern "C" {

#if defined(__SANITIZE_THREAD__)
// gRPC, abseil and protobuf come without instrumentation. What they lock is not seen, so what they
// do through intercepted functions (memcpy, free) must not be seen either.
__attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1";
}
#else
__attribute__((visibility("default"))) const char* __asan_default_options() {
  return "detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1";
}
__attribute__((visibility("default"))) const char* __ubsan_default_options() {
  return "print_stacktrace=1";
}
#endif

}  // extern "C"
