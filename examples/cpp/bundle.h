// A bundle's bytes, read once: what is verified and trusted is what the program then loads.

#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

// SHA-256 (FIPS 180-4) of some bytes, in hexadecimal digits.
class Sha256 {
 public:
  static std::string of(const char* bytes, size_t size) {
    Sha256 hash;
    size_t done = 0;
    for (; done + 64 <= size; done += 64) hash.add(bytes + done);
    // The rest, a bit 1, zeros, and the length in bits as the last 8 bytes of a block.
    std::array<char, 128> end{};
    const size_t rest = size - done, length = rest < 56 ? 64 : 128;
    std::memcpy(end.data(), bytes + done, rest);
    end[rest] = static_cast<char>(0x80);
    for (int i = 0; i < 8; ++i) end[length - 1 - i] = static_cast<char>(uint64_t{size} * 8 >> 8 * i);
    for (size_t block = 0; block < length; block += 64) hash.add(end.data() + block);

    std::string text;
    for (const uint32_t word : hash.state)
      for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
    return text;
  }

 private:
  std::array<uint32_t, 8> state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  static constexpr std::array<uint32_t, 64> ROUNDS{
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
      0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
      0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
      0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

  void add(const char* block) {
    std::array<uint32_t, 64> w;
    for (int i = 0; i < 16; ++i) {
      w[i] = 0;
      for (int byte = 0; byte < 4; ++byte) w[i] = w[i] << 8 | static_cast<uint8_t>(block[4 * i + byte]);
    }
    for (int i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (int i = 0; i < 64; ++i) {
      const uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                             ((e & f) ^ (~e & g)) + ROUNDS[i] + w[i];
      const uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
                              ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
    }
    const std::array<uint32_t, 8> now{a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state[i] += now[i];
  }
};

// The bytes of a regular file. A pipe is not waited for.
inline std::string read_file(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) throw std::runtime_error(path + ": " + std::strerror(errno));
  struct stat status {};
  std::string bytes;
  bool is_whole = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  if (is_whole) bytes.resize(status.st_size);
  for (size_t done = 0; is_whole && done < bytes.size();) {
    const ssize_t count = read(descriptor, bytes.data() + done, bytes.size() - done);
    is_whole = count > 0;
    done += is_whole ? count : 0;
  }
  close(descriptor);
  if (!is_whole) throw std::runtime_error(path + " is not a regular file that can be read");
  return bytes;
}

// The user's list of trusted bundles: the one that `zoerefine export` and `--trust` add to.
inline std::string trust_list() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string list = variable("ZOEREFINE_TRUSTED"); !list.empty()) return list;
  std::string folder = variable("XDG_STATE_HOME");
  if (folder.empty()) folder = variable("HOME") + "/.local/state";
  return folder + "/zoerefine/trusted.txt";
}

inline bool is_trusted(const std::string& digest) {
  std::ifstream list(trust_list());
  for (std::string line; std::getline(list, line);)
    if (line.substr(0, line.find(' ')) == digest) return true;
  return false;
}

// Reads a bundle that is a program. It must end in the SHA-256 of all bytes before, and the user
// must have exported or accepted it.
inline std::string read_bundle(const std::string& path) {
  constexpr size_t SEAL = 64;
  const std::string bytes = read_file(path);
  const size_t size = bytes.size() < SEAL ? 0 : bytes.size() - SEAL;
  const std::string digest = Sha256::of(bytes.data(), size);
  if (bytes.compare(size, SEAL, digest) != 0)
    throw std::runtime_error(path + " is no engine bundle, or was altered after it was built");
  if (!is_trusted(digest))
    throw std::runtime_error(path + " is a program that you have neither exported nor accepted here: "
                             "if you trust who gave it to you, add the line " + digest + " to " +
                             trust_list());
  return bytes;
}

// Loads the classes and operators that TensorRT engines need, if there is a path.
inline void load_runtime(const std::string& path) {
  if (!path.empty() && !dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL))
    throw std::runtime_error(dlerror());
}
