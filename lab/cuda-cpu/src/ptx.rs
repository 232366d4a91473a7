//! Reads PTX: the kernels with their parameters and limits, and the variables with their contents.
//!
//! It does not read the code. Source: NVIDIA, "Parallel Thread Execution ISA", chapters "Directives" and
//! "State spaces".

use crate::kernels::Param;

/// A kernel of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub params: Vec<Param>,
    /// The maximum number of threads in a block (`.maxntid` or `.reqntid`). 0: not given.
    pub threads: u32,
    /// The static shared memory in bytes.
    pub shared: usize,
}

/// A variable in global or constant memory, with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// The contents of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub entries: Vec<Entry>,
    pub variables: Vec<Variable>,
}

/// Splits PTX into words (names, numbers, directives) and single characters. Skips comments and quoted
/// strings.
fn words(text: &str) -> Vec<&str> {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '.' | '%');
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            rest[1..].find('"').map_or(rest.len(), |end| end + 2)
        } else if inside(first) {
            let len = rest.find(|c: char| !inside(c)).unwrap_or(rest.len());
            words.push(&rest[..len]);
            len
        } else {
            if !first.is_whitespace() {
                words.push(&rest[..first.len_utf8()]);
            }
            first.len_utf8()
        };
        rest = &rest[len..];
    }
    words
}

/// Returns the size of a fundamental type in bytes.
fn size(kind: &str) -> Option<usize> {
    Some(match kind {
        ".pred" | ".b8" | ".u8" | ".s8" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" => 8,
        ".b128" => 16,
        _ => return None,
    })
}

/// Reads a number of PTX: decimal, hexadecimal (`0x`), octal, or the bits of a float (`0f` and `0d`).
fn number(word: &str) -> Option<u64> {
    let word = word.trim_end_matches('U');
    if let Some(hex) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    if let Some(hex) = ["0f", "0F", "0d", "0D"].iter().find_map(|prefix| word.strip_prefix(prefix)) {
        return u64::from_str_radix(hex, 16).ok();
    }
    match word.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => word.parse().ok(),
    }
}

/// The maximum size of a variable in bytes.
const MOST: usize = 1 << 30;

/// Reads words one after another.
struct Reader<'a> {
    words: Vec<&'a str>,
    at: usize,
}

/// A declaration of a parameter or a variable.
struct Declared<'a> {
    name: &'a str,
    element: usize,
    align: usize,
    size: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> &'a str {
        self.words.get(self.at).copied().unwrap_or("")
    }

    fn next(&mut self) -> &'a str {
        let word = self.peek();
        self.at += 1;
        word
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == word;
        self.at += usize::from(found);
        found
    }

    /// Reads a declaration after its state space: alignment, type, name, and sizes of an array.
    fn declared(&mut self) -> Option<Declared<'a>> {
        let (mut align, mut element) = (0, 0);
        loop {
            let word = self.next();
            if word == ".align" {
                align = number(self.next())? as usize;
            } else if let Some(size) = size(word) {
                element = size;
            } else if word.starts_with('.') {
                // `.ptr`, `.v2` and others; `.v2` and `.v4` make vectors.
                if let Some(count) = word.strip_prefix(".v").and_then(|count| count.parse::<usize>().ok()) {
                    element = element.checked_mul(count)?;
                }
            } else if element > 0 && !word.is_empty() {
                let mut size = element;
                while self.take("[") {
                    // External shared memory is an array without a size.
                    let count = if self.peek() == "]" { 0 } else { number(self.next())? as usize };
                    size = size.checked_mul(count).filter(|size| *size <= MOST)?;
                    self.take("]").then_some(())?;
                }
                return Some(Declared { name: word, element, align: align.max(element), size });
            } else {
                return None;
            }
        }
    }

    /// Reads the values of a variable. `None`: one is not a number, such as the address of another variable.
    fn values(&mut self, declared: &Declared<'_>) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut open = 0;
        loop {
            match self.next() {
                "{" => open += 1,
                "}" => open -= 1,
                "," => {}
                "-" => {
                    let value = number(self.next())?.wrapping_neg();
                    bytes.extend_from_slice(&value.to_le_bytes()[..declared.element.min(8)]);
                }
                word => bytes.extend_from_slice(&number(word)?.to_le_bytes()[..declared.element.min(8)]),
            }
            if open == 0 {
                return Some(bytes);
            }
        }
    }

    /// Skips a block in braces, and returns where it begins and ends.
    fn body(&mut self) -> (usize, usize) {
        let begin = self.at;
        let mut open = 0;
        while self.at < self.words.len() {
            match self.next() {
                "{" => open += 1,
                "}" => open -= 1,
                _ => {}
            }
            if open == 0 {
                break;
            }
        }
        (begin, self.at)
    }

    /// Reads a kernel after `.entry`. `None`: it is only declared.
    fn entry(&mut self) -> Option<(Entry, (usize, usize))> {
        let name = self.next().to_owned();
        let mut params: Vec<Param> = Vec::new();
        if self.take("(") {
            while !self.take(")") {
                if self.take(",") {
                    continue;
                }
                self.take(".param").then_some(())?;
                let one = self.declared()?;
                let end = params.last().map_or(0, |last| last.offset + last.size);
                params.push(Param { offset: end.checked_next_multiple_of(one.align)?, size: one.size });
            }
        }
        let mut threads = 0;
        loop {
            match self.next() {
                ".maxntid" | ".reqntid" => {
                    let mut product = number(self.next())?;
                    while self.take(",") {
                        product = product.saturating_mul(number(self.next())?);
                    }
                    threads = u32::try_from(product).unwrap_or(u32::MAX);
                }
                "{" => {
                    self.at -= 1;
                    break;
                }
                // A declaration only.
                ";" | "" => return None,
                _ => {}
            }
        }
        Some((Entry { name, params, threads, shared: 0 }, self.body()))
    }
}

/// Reads a module. `None`: it is not PTX that this reader understands.
pub fn read(text: &str) -> Option<Image> {
    let mut reader = Reader { words: words(text), at: 0 };
    let mut image = Image::default();
    let mut bodies = Vec::new();
    // Variables in shared memory. A kernel uses those that its code names.
    let mut shared: Vec<(&str, usize)> = Vec::new();
    reader.words.contains(&".version").then_some(())?;
    while reader.at < reader.words.len() {
        match reader.next() {
            ".entry" => {
                if let Some((entry, body)) = reader.entry() {
                    image.entries.push(entry);
                    bodies.push(body);
                }
            }
            // A function of the device.
            "{" => {
                reader.at -= 1;
                reader.body();
            }
            ".shared" => {
                let one = reader.declared()?;
                shared.push((one.name, one.size));
            }
            ".global" | ".const" => {
                let external = reader.at >= 2 && reader.words[reader.at - 2] == ".extern";
                let one = reader.declared()?;
                let mut bytes = vec![0; one.size];
                if reader.take("=") {
                    let values = reader.values(&one)?;
                    bytes.get_mut(..values.len())?.copy_from_slice(&values);
                }
                if !external {
                    image.variables.push(Variable { name: one.name.to_owned(), bytes });
                }
            }
            _ => {}
        }
    }
    for (entry, (begin, end)) in image.entries.iter_mut().zip(bodies) {
        let mut body = Reader { words: reader.words[begin..end].to_vec(), at: 0 };
        let named = shared.iter().filter(|(name, _)| body.words.contains(name)).map(|(_, size)| size);
        entry.shared = named.sum();
        while body.at < body.words.len() {
            if body.next() == ".shared"
                && let Some(one) = body.declared()
            {
                entry.shared += one.size;
            }
        }
    }
    Some(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
//
// Generated by a compiler
//
.version 7.5
.target sm_75
.address_size 64
.extern .shared .align 8 .b8 words[];
.shared .align 8 .b8 _fixed[49152];
.visible .global .align 4 .u32 module_table[8] = {1, 1, 2, 0x3, 5, 8, 13, 21};
.visible .const .align 4 .f32 constant_value = 0f40200000;
.global .align 1 .b8 text[4] = {97, 98};
/* .entry not_here() */
.func (.param .b32 r) helper(.param .b64 a) { ret; }
.visible .entry arguments_mixed(
	.param .u64 arguments_mixed_param_0,
	.param .u8 arguments_mixed_param_1,
	.param .u16 arguments_mixed_param_2,
	.param .align 1 .b8 arguments_mixed_param_3[3],
	.param .u32 arguments_mixed_param_4,
	.param .f64 arguments_mixed_param_5,
	.param .align 8 .b8 arguments_mixed_param_6[40]
)
{
	.reg .b32 	%r<4>;
	st.shared.u64 [_fixed+8], %rd1;
	ret;
}
.visible .entry _Z6narrowPy(.param .u64 .ptr .global .align 8 p)
.maxntid 64, 1, 1
.minnctapersm 1
{
	.shared .align 4 .b8 own[100];
	@%p bra $L__BB0_2;
	ret;
}
.visible .entry _Z7nothingv() { ret; }
"#;

    #[test]
    fn kernels_have_their_parameters_and_limits() {
        let image = read(TEXT).unwrap();
        let names: Vec<&str> = image.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["arguments_mixed", "_Z6narrowPy", "_Z7nothingv"]);
        let places: Vec<(usize, usize)> =
            image.entries[0].params.iter().map(|param| (param.offset, param.size)).collect();
        assert_eq!(places, [(0, 8), (8, 1), (10, 2), (12, 3), (16, 4), (24, 8), (32, 40)]);
        assert_eq!((image.entries[0].shared, image.entries[0].threads), (49152, 0));
        assert_eq!((image.entries[1].shared, image.entries[1].threads), (100, 64));
        assert_eq!(image.entries[1].params, [Param { offset: 0, size: 8 }]);
        assert!(image.entries[2].params.is_empty());
    }

    #[test]
    fn variables_have_their_contents() {
        let image = read(TEXT).unwrap();
        let of = |name| image.variables.iter().find(|variable| variable.name == name).unwrap().bytes.clone();
        assert_eq!(of("module_table")[8..16], [2, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(of("constant_value"), 2.5f32.to_le_bytes());
        assert_eq!(of("text"), *b"ab\0\0");
    }

    #[test]
    fn other_texts_are_refused_and_cut_ones_do_not_panic() {
        assert_eq!(read("int main() {}"), None);
        for end in (0..TEXT.len()).filter(|end| TEXT.is_char_boundary(*end)) {
            let _ = read(&TEXT[..end]);
        }
    }
}
