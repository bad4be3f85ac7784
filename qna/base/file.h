// Files, read as a whole, and written so that they are whole or absent.
#pragma once

#include <string>
#include <string_view>

namespace qna {

// The bytes of a file. Not for pictures and weights, whose sizes have limits (image/read.h,
// format/mapped_file.h).
std::string read_file(const std::string& path);

// A file in the making: written piece by piece under a temporary name beside `path`, and moved to
// `path` by commit(). Until then, and after any qna::Error, `path` is as it was before.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // without commit(): removes what was written
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  // Flushes to disk and renames. The last call: nothing can be written after it.
  void commit();

 private:
  const std::string path_;
  const std::string temporary_;
  int file_;
  bool committed_ = false;
};

// The same for content that is at hand as a whole.
void write_file(const std::string& path, std::string_view content);

// Throws qna::Error where write_file() could not begin: for results that take long to make.
void check_writable(const std::string& path);

// Removes what processes have left in `folder` that were killed while they wrote files. Nobody may
// be writing there.
void remove_leftovers(const std::string& folder);

// Keeps others out of a folder for as long as it lives. Where the file system knows no locks,
// nobody is kept out. Ends with the process, however that ends.
class FolderLock {
 public:
  FolderLock() = default;  // of none
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool take(const std::string& folder);  // false: somebody else has it

 private:
  int file_ = -1;
};

// For messages about a file or folder that is not there: "; did you mean 'runs/best.safetensors'?"
// where its folder has one of nearly that name, or nothing.
std::string did_you_mean_file(const std::string& path);

}  // namespace qna
