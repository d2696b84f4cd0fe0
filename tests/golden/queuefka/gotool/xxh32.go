package main

import (
	"encoding/binary"
	"math/bits"
)

// Constants of the published xxHash specification, 32-bit variant.
const (
	p1 uint32 = 0x9E3779B1
	p2 uint32 = 0x85EBCA77
	p3 uint32 = 0xC2B2AE3D
	p4 uint32 = 0x27D4EB2F
	p5 uint32 = 0x165667B1
)

// xxh32 is XXH32 with seed 0, written from the specification.
func xxh32(data []byte) uint32 {
	total := uint32(len(data))
	acc := p5
	if len(data) >= 16 {
		// "+ 0" lanes in variables, so the wrap-around is at run time.
		seed := uint32(0)
		lanes := [4]uint32{seed + p2, seed + p2, seed, seed - p1}
		lanes[0] += p1
		for len(data) >= 16 {
			for i := range lanes {
				word := binary.LittleEndian.Uint32(data[4*i:])
				lanes[i] = bits.RotateLeft32(lanes[i]+word*p2, 13) * p1
			}
			data = data[16:]
		}
		acc = 0
		for i, turn := range [4]int{1, 7, 12, 18} {
			acc += bits.RotateLeft32(lanes[i], turn)
		}
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
