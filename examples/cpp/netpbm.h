// Pictures as binary PPM (8 bits) and PGM (16 bits, metres * 256), which need no library.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

struct Picture {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> bytes;
};

// Reads a binary netpbm file of a given kind ("P5 65535", "P6 255"). Its header may hold comments.
inline Picture read_netpbm(const std::string& path, const std::string& kind, int64_t bytes_per_pixel) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  const auto word = [&file] {
    std::string next, rest;
    while (file >> next && next[0] == '#') std::getline(file, rest);
    return next;
  };
  const std::string magic = word(), width = word(), height = word(), max_value = word();
  if (magic + " " + max_value != kind) throw std::runtime_error(path + " is not of kind " + kind);
  file.get();  // one white space ends the header

  Picture picture{std::stoll(width), std::stoll(height), {}};
  if (picture.width < 1 || picture.height < 1) throw std::runtime_error(path + " has no pixels");
  const auto start = file.tellg();
  const int64_t left = file.seekg(0, std::ios::end).tellg() - start;
  if (picture.height > left / bytes_per_pixel / picture.width)
    throw std::runtime_error(path + " is cut short");
  picture.bytes.resize(picture.width * picture.height * bytes_per_pixel);
  // A header that ends in two characters, as in text files of Windows, would shift all pixels.
  if (left > static_cast<int64_t>(picture.bytes.size()))
    throw std::runtime_error(path + " has bytes beyond its pixels");
  if (!file.seekg(start).read(reinterpret_cast<char*>(picture.bytes.data()), left))
    throw std::runtime_error(path + " is cut short");
  return picture;
}

// Swaps the bytes of 16-bit values: netpbm stores them as big endian, this machine as little.
inline void swap_bytes(uint8_t* bytes, size_t count) {
  for (size_t i = 0; i + 1 < count; i += 2) std::swap(bytes[i], bytes[i + 1]);
}

inline void write_pgm(const std::string& path, torch::Tensor depth) {
  std::vector<uint8_t> bytes(depth.numel() * 2);
  std::memcpy(bytes.data(), depth.data_ptr(), bytes.size());
  swap_bytes(bytes.data(), bytes.size());
  std::ofstream file(path, std::ios::binary);
  file << "P5\n" << depth.size(1) << " " << depth.size(0) << "\n65535\n";
  file.write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  file.close();  // only then the disk has the last bytes
  if (!file) throw std::runtime_error(path + " cannot be written");
}

// A picture and its pseudo depth, of the same size.
struct Frame {
  Picture rgb, zoe;

  Frame(const std::string& rgb_path, const std::string& zoe_path)
      : rgb(read_netpbm(rgb_path, "P6 255", 3)), zoe(read_netpbm(zoe_path, "P5 65535", 2)) {
    if (rgb.width != zoe.width || rgb.height != zoe.height)
      throw std::runtime_error(rgb_path + " and " + zoe_path + " differ in size");
    swap_bytes(zoe.bytes.data(), zoe.bytes.size());
  }

  // uint8 [1, H, W, 3] and uint16 [1, H, W], in this frame's memory.
  torch::Tensor rgb_u8() {
    return torch::from_blob(rgb.bytes.data(), {1, rgb.height, rgb.width, 3}, torch::kUInt8);
  }
  torch::Tensor zoe_u16() {
    return torch::from_blob(zoe.bytes.data(), {1, zoe.height, zoe.width}, torch::kUInt16);
  }
};

// Writes an engine's outputs, uint16 [1, H, W] each: depth and, with confidence, spread.
inline void write_outputs(const std::string& path, const std::vector<torch::Tensor>& outputs) {
  write_pgm(path, outputs[0][0].cpu().contiguous());
  if (outputs.size() > 1)
    write_pgm(path + ".confidence.pgm", outputs[1][0].cpu().contiguous());
}
