//! XDR (RFC 4506): one declaration gives a type both its encoder and its decoder.
//!
//! Variable-length payloads are never copied: a [`Reader`] hands out slices of the refcounted buffer
//! that it reads from, and a [`Writer`] keeps long payloads apart as segments of a vectored write.

use bytes::{BufMut, Bytes, BytesMut};

/// Payloads of at least this many bytes travel as their own segment instead of being copied.
const SEGMENT_MIN: usize = 512;

/// Why bytes could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The message ended inside an item.
    #[error("message is truncated")]
    Truncated,
    /// A length, discriminant or boolean is outside its range.
    #[error("value is out of range")]
    OutOfRange,
    /// Bytes remain after the last item.
    #[error("bytes remain after the message")]
    Trailing,
}

/// The result of decoding.
pub type Result<T> = std::result::Result<T, XdrError>;

/// A value with an XDR form.
pub trait Xdr: Sized {
    /// Appends the XDR form.
    fn encode(&self, w: &mut Writer);
    /// Reads one value.
    fn decode(r: &mut Reader) -> Result<Self>;

    /// The whole XDR form in one buffer.
    fn to_bytes(&self) -> Bytes {
        let mut w = Writer::new();
        self.encode(&mut w);
        w.into_bytes()
    }

    /// Decodes a buffer that holds exactly one value.
    fn from_bytes(bytes: Bytes) -> Result<Self> {
        let mut r = Reader::new(bytes);
        let value = Self::decode(&mut r)?;
        r.finish()?;
        Ok(value)
    }
}

/// Reads XDR from one contiguous buffer.
#[derive(Debug, Clone)]
pub struct Reader {
    rest: Bytes,
}

impl Reader {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// What has not been read.
    pub fn into_rest(self) -> Bytes {
        self.rest
    }

    /// Succeeds if everything was read.
    pub fn finish(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(XdrError::Trailing) }
    }

    /// The next `len` bytes, without padding.
    pub fn take(&mut self, len: usize) -> Result<Bytes> {
        if len > self.rest.len() {
            return Err(XdrError::Truncated);
        }
        Ok(self.rest.split_to(len))
    }

    /// The next `N` bytes by value, without padding.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        let Some(head) = self.rest.get(..N) else { return Err(XdrError::Truncated) };
        out.copy_from_slice(head);
        bytes::Buf::advance(&mut self.rest, N);
        Ok(out)
    }

    /// An unsigned 32-bit integer.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// An unsigned 64-bit integer.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Opaque data of fixed length, with its padding.
    pub fn opaque_fixed(&mut self, len: usize) -> Result<Bytes> {
        let data = self.take(len)?;
        self.take(padding(len))?;
        Ok(data)
    }

    /// Opaque data of variable length, at most `max` bytes.
    pub fn opaque(&mut self, max: usize) -> Result<Bytes> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(XdrError::OutOfRange);
        }
        self.opaque_fixed(len)
    }

    /// A counted array of at most `max` elements, each at least `min_size` bytes long on the wire.
    pub fn array_of<T>(
        &mut self,
        max: usize,
        min_size: usize,
        mut one: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let count = self.u32()? as usize;
        if count > max {
            return Err(XdrError::OutOfRange);
        }
        if count.saturating_mul(min_size.max(1)) > self.remaining() {
            return Err(XdrError::Truncated);
        }
        (0..count).map(|_| one(self)).collect()
    }
}

/// Appends XDR; long payloads are kept as segments of their own.
#[derive(Debug, Default)]
pub struct Writer {
    done: Vec<Bytes>,
    done_len: usize,
    head: BytesMut,
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Self {
        Self { done: Vec::new(), done_len: 0, head: BytesMut::with_capacity(256) }
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.done_len + self.head.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes as they are, without length or padding.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.head.put_slice(bytes);
    }

    /// An unsigned 32-bit integer.
    pub fn u32(&mut self, v: u32) {
        self.head.put_u32(v);
    }

    /// An unsigned 64-bit integer.
    pub fn u64(&mut self, v: u64) {
        self.head.put_u64(v);
    }

    /// Opaque data of fixed length, with its padding.
    pub fn opaque_fixed(&mut self, data: &[u8]) {
        self.head.put_slice(data);
        self.head.put_bytes(0, padding(data.len()));
    }

    /// Opaque data of variable length, copied.
    pub fn opaque(&mut self, data: &[u8]) {
        self.u32(data.len() as u32);
        self.opaque_fixed(data);
    }

    /// Opaque data of variable length; a long payload is not copied.
    pub fn payload(&mut self, data: &Bytes) {
        self.payloads(std::slice::from_ref(data));
    }

    /// One opaque value whose content is the concatenation of `parts`; long parts are not copied.
    pub fn payloads(&mut self, parts: &[Bytes]) {
        let len: usize = parts.iter().map(Bytes::len).sum();
        self.u32(len as u32);
        for part in parts {
            self.segment(part.clone());
        }
        self.head.put_bytes(0, padding(len));
    }

    /// Bytes as they are, without length or padding; long ones are not copied.
    pub fn segment(&mut self, bytes: Bytes) {
        if bytes.len() < SEGMENT_MIN {
            self.head.put_slice(&bytes);
        } else {
            self.flush();
            self.done_len += bytes.len();
            self.done.push(bytes);
        }
    }

    /// All that `other` holds; long segments are not copied.
    pub fn append(&mut self, mut other: Writer) {
        for segment in other.done.drain(..) {
            self.segment(segment);
        }
        if other.head.len() < SEGMENT_MIN {
            self.head.put_slice(&other.head);
        } else {
            self.segment(other.head.freeze());
        }
    }

    /// Takes out what was written so far as a list of segments and leaves the writer empty.
    pub fn take_segments(&mut self) -> Vec<Bytes> {
        self.flush();
        self.done_len = 0;
        std::mem::take(&mut self.done)
    }

    /// A counted array.
    pub fn array_of<T>(&mut self, items: &[T], mut one: impl FnMut(&mut Self, &T)) {
        self.u32(items.len() as u32);
        for item in items {
            one(self, item);
        }
    }

    /// The message as a list of segments.
    pub fn into_segments(mut self) -> Vec<Bytes> {
        self.take_segments()
    }

    /// The message in one buffer.
    pub fn into_bytes(mut self) -> Bytes {
        if self.done.is_empty() {
            return self.head.freeze();
        }
        self.flush();
        let mut out = BytesMut::with_capacity(self.done_len);
        self.done.iter().for_each(|s| out.put_slice(s));
        out.freeze()
    }

    fn flush(&mut self) {
        if !self.head.is_empty() {
            self.done_len += self.head.len();
            self.done.push(self.head.split().freeze());
        }
    }
}

/// Zero bytes after opaque data of `len` bytes.
pub fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

impl Xdr for u32 {
    fn encode(&self, w: &mut Writer) {
        w.u32(*self);
    }
    fn decode(r: &mut Reader) -> Result<Self> {
        r.u32()
    }
}

impl Xdr for u64 {
    fn encode(&self, w: &mut Writer) {
        w.u64(*self);
    }
    fn decode(r: &mut Reader) -> Result<Self> {
        r.u64()
    }
}

impl Xdr for i64 {
    fn encode(&self, w: &mut Writer) {
        w.u64(*self as u64);
    }
    fn decode(r: &mut Reader) -> Result<Self> {
        Ok(r.u64()? as i64)
    }
}

impl Xdr for bool {
    fn encode(&self, w: &mut Writer) {
        w.u32(u32::from(*self));
    }
    fn decode(r: &mut Reader) -> Result<Self> {
        match r.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(XdrError::OutOfRange),
        }
    }
}

impl Xdr for () {
    fn encode(&self, _: &mut Writer) {}
    fn decode(_: &mut Reader) -> Result<Self> {
        Ok(())
    }
}

/// Opaque data bounded only by the message it stands in.
impl Xdr for Bytes {
    fn encode(&self, w: &mut Writer) {
        w.payload(self);
    }
    fn decode(r: &mut Reader) -> Result<Self> {
        r.opaque(u32::MAX as usize)
    }
}

/// `T *` of the XDR language: a boolean, then the value if there is one.
impl<T: Xdr> Xdr for Option<T> {
    fn encode(&self, w: &mut Writer) {
        self.is_some().encode(w);
        if let Some(v) = self {
            v.encode(w);
        }
    }
    fn decode(r: &mut Reader) -> Result<Self> {
        if bool::decode(r)? { T::decode(r).map(Some) } else { Ok(None) }
    }
}

/// A counted array; the count is checked against the bytes that are left before anything is allocated.
impl<T: Xdr> Xdr for Vec<T> {
    fn encode(&self, w: &mut Writer) {
        w.array_of(self, |w, v| v.encode(w));
    }
    fn decode(r: &mut Reader) -> Result<Self> {
        r.array_of(u32::MAX as usize, 4, T::decode)
    }
}

impl<const N: usize> Xdr for [u8; N] {
    fn encode(&self, w: &mut Writer) {
        w.opaque_fixed(self);
    }
    fn decode(r: &mut Reader) -> Result<Self> {
        let v = r.array()?;
        r.take(padding(N))?;
        Ok(v)
    }
}

/// Declares XDR types once: `struct` with its fields in wire order, `enum` with its numbers, or
/// `union` whose arms each carry a number and at most one value.
///
/// ```
/// oncrpc::xdr! {
///     /// A point.
///     #[derive(Debug, Clone, PartialEq)]
///     pub struct Point {
///         /// Abscissa.
///         pub x: u32,
///         /// Ordinate.
///         pub y: u64,
///     }
///     /// A shape.
///     #[derive(Debug, Clone, PartialEq)]
///     pub union Shape {
///         /// Nothing.
///         Empty = 0,
///         /// A dot.
///         Dot(Point) = 1,
///     }
/// }
/// use oncrpc::xdr::Xdr;
/// let s = Shape::Dot(Point { x: 1, y: 2 });
/// assert_eq!(Shape::from_bytes(s.to_bytes()).unwrap(), s);
/// ```
#[macro_export]
macro_rules! xdr {
    () => {};
    ($(#[$m:meta])* pub struct $name:ident { $($(#[$fm:meta])* pub $f:ident : $t:ty),* $(,)? } $($rest:tt)*) => {
        $(#[$m])* pub struct $name { $($(#[$fm])* pub $f: $t),* }
        impl $crate::xdr::Xdr for $name {
            fn encode(&self, w: &mut $crate::xdr::Writer) {
                $($crate::xdr::Xdr::encode(&self.$f, w);)*
                let _ = w;
            }
            fn decode(r: &mut $crate::xdr::Reader) -> $crate::xdr::Result<Self> {
                let _ = &r;
                Ok(Self { $($f: $crate::xdr::Xdr::decode(r)?),* })
            }
        }
        $crate::xdr! { $($rest)* }
    };
    ($(#[$m:meta])* pub enum $name:ident { $($(#[$vm:meta])* $v:ident = $n:expr),* $(,)? } $($rest:tt)*) => {
        $(#[$m])* pub enum $name { $($(#[$vm])* $v = $n),* }
        impl $crate::xdr::Xdr for $name {
            fn encode(&self, w: &mut $crate::xdr::Writer) {
                w.u32(match self { $(Self::$v => $n),* });
            }
            fn decode(r: &mut $crate::xdr::Reader) -> $crate::xdr::Result<Self> {
                match r.u32()? {
                    $(n if n == $n => Ok(Self::$v),)*
                    _ => Err($crate::xdr::XdrError::OutOfRange),
                }
            }
        }
        $crate::xdr! { $($rest)* }
    };
    ($(#[$m:meta])* pub union $name:ident { $($(#[$vm:meta])* $v:ident $(($t:ty))? = $n:expr),* $(,)? } $($rest:tt)*) => {
        $(#[$m])* pub enum $name { $($(#[$vm])* $v $(($t))?),* }
        impl $crate::xdr::Xdr for $name {
            fn encode(&self, w: &mut $crate::xdr::Writer) {
                $($crate::xdr!(@encode self w $v $(($t))? = $n);)*
            }
            fn decode(r: &mut $crate::xdr::Reader) -> $crate::xdr::Result<Self> {
                match r.u32()? {
                    $(n if n == $n => $crate::xdr!(@decode r $v $(($t))?),)*
                    _ => Err($crate::xdr::XdrError::OutOfRange),
                }
            }
        }
        $crate::xdr! { $($rest)* }
    };
    (@encode $s:ident $w:ident $v:ident ($t:ty) = $n:expr) => {
        if let Self::$v(x) = $s {
            $w.u32($n);
            $crate::xdr::Xdr::encode(x, $w);
        }
    };
    (@encode $s:ident $w:ident $v:ident = $n:expr) => {
        if let Self::$v = $s {
            $w.u32($n);
        }
    };
    (@decode $r:ident $v:ident ($t:ty)) => {
        Ok(Self::$v(<$t as $crate::xdr::Xdr>::decode($r)?))
    };
    (@decode $r:ident $v:ident) => {
        Ok(Self::$v)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::xdr! {
        /// Test struct.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Pair {
            /// a
            pub a: u32,
            /// b
            pub b: Bytes,
        }
        /// Test union.
        #[derive(Debug, Clone, PartialEq)]
        pub union Maybe {
            /// n
            No = 0,
            /// y
            Yes(Pair) = 7,
        }
    }

    #[test]
    fn round_trip_and_layout() {
        let v = Maybe::Yes(Pair { a: 1, b: Bytes::from_static(b"abcde") });
        let bytes = v.to_bytes();
        assert_eq!(&bytes[..], b"\0\0\0\x07\0\0\0\x01\0\0\0\x05abcde\0\0\0");
        assert_eq!(Maybe::from_bytes(bytes).unwrap(), v);
    }

    #[test]
    fn a_long_payload_is_not_copied() {
        let data = Bytes::from(vec![9; 4096]);
        let mut w = Writer::new();
        w.payload(&data);
        let segments = w.into_segments();
        assert_eq!(segments[1].as_ptr(), data.as_ptr());
    }

    #[test]
    fn a_count_beyond_the_message_allocates_nothing() {
        let mut r = Reader::new(Bytes::from_static(b"\xff\xff\xff\xff\0\0\0\0"));
        assert_eq!(Vec::<u32>::decode(&mut r), Err(XdrError::Truncated));
    }

    #[test]
    fn bad_values_are_refused() {
        assert_eq!(bool::from_bytes(Bytes::from_static(b"\0\0\0\x02")), Err(XdrError::OutOfRange));
        assert_eq!(Maybe::from_bytes(Bytes::from_static(b"\0\0\0\x03")), Err(XdrError::OutOfRange));
        assert_eq!(u32::from_bytes(Bytes::from_static(b"\0\0\0\0\0")), Err(XdrError::Trailing));
    }
}
