// Small files and folders: whole reads, durable replacement, listing. Bulk data never passes here
// (memory_file.h). The operations they are made of are the kernel's, or a simulated disk's
// (disk.h).
//
// Every failure is a Status with what was attempted, the path and the errno (errno_status.h).
// Threads: free functions, as safe as the kernel's own; two writers of one path: one wins, never a
// blend.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace mooncake::env {

// Whole content. NOT_FOUND if absent; EXHAUSTED if larger than `bytes_max`, before it is read.
inline constexpr uint64_t kReadFileBytesMax = uint64_t{1} << 30;
Result<std::string> ReadFile(const std::string& path, uint64_t bytes_max = kReadFileBytesMax);

// Replaces or creates `path` so that after any crash it holds either its old or its new content:
//   1. write a temporary file in the same folder, 2. fsync it, 3. rename it over `path`,
//   4. fsync the folder.
// OK means durable. On failure of 1-3 `path` is unchanged and the temporary is removed; on failure
// of 4 the new content is visible but perhaps not durable.
Status WriteFileDurably(const std::string& path, std::string_view bytes);

// Temporary files of WriteFileDurably are named with this prefix; one that a crash left behind is
// removed by RemoveTemporaries (call it only while no one writes into the folder).
inline constexpr std::string_view kTemporaryPrefix = ".tmp-";
Status RemoveTemporaries(const std::string& folder);

// Both in one file system; durable only after SyncFolder of both folders. Replaces a file at `to`.
Status RenamePath(const std::string& from, const std::string& to);

// Absence is OK: removal is repeated after crashes. Durable only after SyncFolder of its folder.
Status RemoveFile(const std::string& path);

// Removes a folder and all below it, never following a symbolic link; absence is OK.
Status RemoveFolderTree(const std::string& path);

// Names (not paths) of everything in the folder but "." and "..", sorted by bytes.
Result<std::vector<std::string>> ListFolder(const std::string& path);

// Creates the folder and its missing parents (mode 0700), each made durable in its parent; so is
// the name of one that is there already.
Status MakeFolders(const std::string& path);

// fsync of the folder: makes creations, renames and removals in it durable.
Status SyncFolder(const std::string& path);

// Whether anything has this path (a dangling symbolic link counts).
Result<bool> PathExists(const std::string& path);

// What this user may still write to the file system that holds `path`.
Result<uint64_t> FreeDiskBytes(const std::string& path);

// What the files below the folder take on disk, whatever their sizes say. What goes or comes while
// it is summed may or may not be counted.
Result<uint64_t> DiskBytesBelow(const std::string& folder);

// "a/b" of "a/b/c", "." of "c", "/" of "/c".
std::string FolderOf(const std::string& path);

}  // namespace mooncake::env
