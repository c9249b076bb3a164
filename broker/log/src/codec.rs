//! Compression of record batches: gzip, snappy, lz4 and zstd in the framings that Kafka clients write and read.
//!
//! Most batches pass a broker as they are. They are opened where a record must be seen (offsets by time, compacted topics), and
//! where a topic wants another codec.
//! What is opened may be hostile: output is bounded by [`RECORDS_BYTES_MAX`] and grows with what was really decoded, never by
//! a declared size.

use std::io::{self, Read, Write as _};

use barnabas_types::CompressionType;
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use crate::batch::BatchError;

/// Most bytes that the records of one batch may come to when they are decompressed.
pub const RECORDS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the snappy stream of the Java client (xerial) begins with; other clients write one bare block.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;
/// Bytes of each block of such a stream before compression, as the Java client has them.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;
/// A snappy block can say no more than 64 bytes with each 3 of its own.
const SNAPPY_RATIO_MAX: usize = 22;
/// Window that a zstd frame may ask for, as a power of two: that of the highest level. Pages of it are taken when they are
/// written to.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Kafka's default levels.
const ZSTD_LEVEL: i32 = 3;
const GZIP_LEVEL: u32 = 6;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// Not at all.
    None,
    /// RFC 1952, level 6 when written.
    Gzip,
    /// One bare block, or xerial's stream of blocks; the latter when written.
    Snappy,
    /// The LZ4 frame format with a right header checksum (only batches before v2 have Kafka's historic wrong one).
    Lz4,
    /// RFC 8878, level 3 when written (KIP-110).
    Zstd,
}

impl Codec {
    /// The codec that a batch's attributes name.
    ///
    /// # Errors
    /// [`BatchError::Codec`].
    pub fn of(attributes: i16) -> Result<Self, BatchError> {
        match attributes & crate::batch::CODEC_MASK {
            0 => Ok(Self::None),
            1 => Ok(Self::Gzip),
            2 => Ok(Self::Snappy),
            3 => Ok(Self::Lz4),
            4 => Ok(Self::Zstd),
            other => Err(BatchError::Codec(other)),
        }
    }

    /// Its number in a batch's attributes.
    pub(crate) fn number(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// The one that a topic wants; `None`: whichever its producers choose.
    pub(crate) fn wanted(by: CompressionType) -> Option<Self> {
        match by {
            CompressionType::Producer => None,
            CompressionType::Uncompressed => Some(Self::None),
            CompressionType::Gzip => Some(Self::Gzip),
            CompressionType::Snappy => Some(Self::Snappy),
            CompressionType::Lz4 => Some(Self::Lz4),
            CompressionType::Zstd => Some(Self::Zstd),
        }
    }

    /// Replaces `out` by the decompressed bytes.
    ///
    /// # Errors
    /// [`BatchError::Compression`]; [`BatchError::RecordsTooLarge`] above [`RECORDS_BYTES_MAX`]. `out` may hold anything then.
    pub fn decompress(self, input: &[u8], out: &mut Vec<u8>) -> Result<(), BatchError> {
        out.clear();
        match self {
            Self::None => {
                out.extend_from_slice(input);
                Ok(())
            }
            Self::Gzip => self.read(MultiGzDecoder::new(input), out),
            Self::Snappy => unsnappy(input, out),
            Self::Lz4 => self.read(FrameDecoder::new(input), out),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(input)
                    .map_err(|_| BatchError::Compression(self))?;
                decoder
                    .window_log_max(ZSTD_WINDOW_LOG_MAX)
                    .map_err(|_| BatchError::Compression(self))?;
                self.read(decoder, out)
            }
        }
    }

    fn read(self, reader: impl Read, out: &mut Vec<u8>) -> Result<(), BatchError> {
        let mut bounded = reader.take(RECORDS_BYTES_MAX as u64 + 1);
        bounded.read_to_end(out).map_err(|_| BatchError::Compression(self))?;
        if out.len() > RECORDS_BYTES_MAX { Err(BatchError::RecordsTooLarge) } else { Ok(()) }
    }

    /// Appends the compressed bytes to `out`.
    ///
    /// # Errors
    /// From the compressor; none is known for input in memory.
    pub fn compress(self, input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::None => out.extend_from_slice(input),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(out, Compression::new(GZIP_LEVEL));
                encoder.write_all(input)?;
                encoder.finish()?;
            }
            Self::Snappy => snappy(input, out)?,
            Self::Lz4 => {
                // The Java client reads independent blocks only.
                let info = FrameInfo::new()
                    .block_size(BlockSize::Max64KB)
                    .block_mode(BlockMode::Independent);
                let mut encoder = FrameEncoder::with_frame_info(info, out);
                encoder.write_all(input)?;
                encoder.finish().map_err(io::Error::other)?;
            }
            Self::Zstd => {
                let compressed = zstd::bulk::compress(input, ZSTD_LEVEL)?;
                out.extend_from_slice(&compressed);
            }
        }
        Ok(())
    }
}

fn snappy(input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&XERIAL_MAGIC);
    // Version and the least version that reads it.
    out.extend_from_slice(&1_i32.to_be_bytes());
    out.extend_from_slice(&1_i32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in input.chunks(XERIAL_BLOCK_BYTES) {
        let compressed = encoder.compress_vec(block).map_err(io::Error::other)?;
        let length = i32::try_from(compressed.len()).map_err(io::Error::other)?;
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&compressed);
    }
    Ok(())
}

fn unsnappy(input: &[u8], out: &mut Vec<u8>) -> Result<(), BatchError> {
    let damaged = BatchError::Compression(Codec::Snappy);
    if !input.starts_with(&XERIAL_MAGIC) {
        return unsnappy_block(input, out);
    }
    let mut rest = input;
    while !rest.is_empty() {
        // Streams may lie one after the other.
        if rest.starts_with(&XERIAL_MAGIC) {
            rest = rest.get(XERIAL_HEADER_BYTES..).ok_or(damaged)?;
            continue;
        }
        let (length, after) = rest.split_first_chunk::<4>().ok_or(damaged)?;
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| damaged)?;
        let (block, after) = after.split_at_checked(length).ok_or(damaged)?;
        unsnappy_block(block, out)?;
        rest = after;
    }
    Ok(())
}

fn unsnappy_block(block: &[u8], out: &mut Vec<u8>) -> Result<(), BatchError> {
    let damaged = |_| BatchError::Compression(Codec::Snappy);
    let length = snap::raw::decompress_len(block).map_err(damaged)?;
    if length > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
        return Err(BatchError::Compression(Codec::Snappy));
    }
    let before = out.len();
    if length > RECORDS_BYTES_MAX - before {
        return Err(BatchError::RecordsTooLarge);
    }
    out.resize(before + length, 0);
    snap::raw::Decoder::new().decompress(block, &mut out[before..]).map_err(damaged)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    fn some_bytes(length: usize) -> Vec<u8> {
        (0..length).map(|i| ((i * i) >> 7) as u8 ^ (i % 7) as u8).collect()
    }

    fn compressed(codec: Codec, input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        codec.compress(input, &mut out).unwrap();
        out
    }

    #[test]
    fn every_codec_gives_back_what_it_took() {
        for codec in ALL {
            for length in [0, 1, 100, 32 * 1024, 32 * 1024 + 1, 300_000] {
                let bytes = some_bytes(length);
                let mut back = vec![9; 5];
                codec.decompress(&compressed(codec, &bytes), &mut back).unwrap();
                assert_eq!(back, bytes, "{codec:?}, {length} bytes");
            }
        }
    }

    #[test]
    fn snappy_is_read_bare_and_in_xerials_stream() {
        let bytes = some_bytes(100_000);
        let mut out = Vec::new();
        let bare = snap::raw::Encoder::new().compress_vec(&bytes).unwrap();
        Codec::Snappy.decompress(&bare, &mut out).unwrap();
        assert_eq!(out, bytes);
        let stream = compressed(Codec::Snappy, &bytes);
        assert_eq!(stream[..16], *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01");
        let twice = [stream.clone(), stream].concat();
        Codec::Snappy.decompress(&twice, &mut out).unwrap();
        assert_eq!(out, [bytes.clone(), bytes].concat());
    }

    #[test]
    fn lz4_frames_are_those_of_the_java_client() {
        let frame = compressed(Codec::Lz4, &some_bytes(1000));
        // Magic; version 1 with independent blocks and no checksum or size of the content; blocks of 64 KiB.
        assert_eq!(frame[..6], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40]);
        let mut wrong = frame;
        wrong[6] ^= 1;
        let refused = Codec::Lz4.decompress(&wrong, &mut Vec::new());
        assert_eq!(refused, Err(BatchError::Compression(Codec::Lz4)), "its header checksum counts");
    }

    #[test]
    fn g1_a_few_bytes_never_become_gigabytes() {
        let zeros = vec![0; RECORDS_BYTES_MAX + 1];
        for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd, Codec::Snappy] {
            let mut out = Vec::new();
            let bomb = compressed(codec, &zeros);
            assert_eq!(codec.decompress(&bomb, &mut out), Err(BatchError::RecordsTooLarge));
            assert!(out.capacity() <= 2 * RECORDS_BYTES_MAX + 64, "{codec:?} {}", out.capacity());
            let most = compressed(codec, &zeros[1..]);
            assert_eq!(codec.decompress(&most, &mut out), Ok(()));
        }
        // A snappy block that declares 1 GiB.
        let mut out = Vec::new();
        let declared = [0x80, 0x80, 0x80, 0x80, 0x04, 0, 0];
        assert!(Codec::Snappy.decompress(&declared, &mut out).is_err());
        assert_eq!(out.capacity(), 0);
    }

    #[test]
    fn damage_is_an_error_or_other_bytes_but_no_panic() {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = move |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % below as u64).unwrap()
        };
        let mut out = Vec::new();
        for codec in ALL {
            let good = compressed(codec, &some_bytes(3000));
            for _ in 0..2000 {
                let mut bad = good.clone();
                for _ in 0..=next(4) {
                    let at = next(bad.len());
                    bad[at] = next(256) as u8;
                }
                bad.truncate(next(bad.len() + 1));
                let _ = codec.decompress(&bad, &mut out);
                assert!(out.len() <= RECORDS_BYTES_MAX + 1);
            }
        }
    }
}
