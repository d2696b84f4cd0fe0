package main

import (
	"encoding/binary"
	"math/bits"
)

// Constants of the published xxHash specification, 32-bit variant.
const p1, p2, p3, p4, p5 uint32 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1

func lane(acc uint32, data []byte) uint32 {
	return bits.RotateLeft32(acc+binary.LittleEndian.Uint32(data)*p2, 13) * p1
}

// xxh32 is XXH32 with seed 0, written from the specification.
func xxh32(data []byte) uint32 {
	total, acc := uint32(len(data)), p5
	if len(data) >= 16 {
		var zero uint32 // a variable: constants do not wrap around
		a, b, c, d := zero+p1+p2, zero+p2, zero, zero-p1
		for ; len(data) >= 16; data = data[16:] {
			a, b, c, d = lane(a, data), lane(b, data[4:]), lane(c, data[8:]), lane(d, data[12:])
		}
		acc = bits.RotateLeft32(a, 1) + bits.RotateLeft32(b, 7) + bits.RotateLeft32(c, 12) + bits.RotateLeft32(d, 18)
	}
	acc += total
	for ; len(data) >= 4; data = data[4:] {
		acc = bits.RotateLeft32(acc+binary.LittleEndian.Uint32(data)*p3, 17) * p4
	}
	for _, b := range data {
		acc = bits.RotateLeft32(acc+uint32(b)*p5, 11) * p1
	}
	acc = (acc ^ acc>>15) * p2
	acc = (acc ^ acc>>13) * p3
	return acc ^ acc>>16
}
