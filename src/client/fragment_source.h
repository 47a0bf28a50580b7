// A caller's fragment as the copy engine reads it: checked sizes and strides, folded loops.
//
// Pure; touches no byte of the fragment.
#pragma once

#include "base/status.h"
#include "client/store_client.h"
#include "manifest/types.h"
#include "transfer/copy_engine.h"

namespace mooncake::client {

// INVALID_ARGUMENT, naming the fragment's tensor and both values: another size, strides of another
// rank or negative ones, no address. UNSUPPORTED: more loops than the engine has, which no dense
// tensor needs.
Result<transfer::StridedSource> MakeStridedSource(const manifest::PlacementFragment& fragment,
                                                  const FragmentSource& source);

}  // namespace mooncake::client
