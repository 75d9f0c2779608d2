//! What one command may take of the machine.

use clap::Args;
use postern_exec::Limits;

/// Limits of each command.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct LimitArgs {
    /// Memory of each command with all that it starts, such as 512M or 2G [default: no limit]
    #[arg(long, value_name = "BYTES", env = "POSTERN_MEMORY", value_parser = parse_bytes)]
    pub(crate) memory: Option<u64>,
    /// Processes and threads of each command [default: no limit]
    #[arg(long, value_name = "N", env = "POSTERN_PROCESSES", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) processes: Option<u32>,
    /// Processors that each command may keep busy, such as 1.5 [default: no limit]
    #[arg(long, value_name = "N", env = "POSTERN_CPUS", value_parser = parse_cpus)]
    pub(crate) cpus: Option<u32>,
}

impl LimitArgs {
    /// The same for the worker.
    pub(crate) const fn limits(self) -> Limits {
        Limits {
            memory_bytes: self.memory,
            processes: self.processes,
            millicpus: self.cpus,
        }
    }
}

/// Least memory: below it no shell starts.
const LEAST_BYTES: u64 = 4 * 1024 * 1024;

fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong =
        || "write a number of bytes from 4M on, with K, M or G after it if you like".to_owned();
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1024),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1024 * 1024),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1024 * 1024 * 1024),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number
        .checked_mul(factor)
        .filter(|bytes| *bytes >= LEAST_BYTES)
        .ok_or_else(wrong)
}

/// Thousandths of a processor.
fn parse_cpus(text: &str) -> Result<u32, String> {
    let wrong = || "write a number of processors from 0.01 to 1024, such as 1.5".to_owned();
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 3 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let whole: u32 = whole.parse().map_err(|_| wrong())?;
    let part: u32 = format!("{part:0<3}").parse().map_err(|_| wrong())?;
    whole
        .checked_mul(1000)
        .and_then(|millis| millis.checked_add(part))
        .filter(|millis| (10..=1_024_000).contains(millis))
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn limits_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4194304", 4 << 20),
            ("512M", 512 << 20),
            ("2g", 2 << 30),
            ("8192K", 8 << 20),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for bad in ["", "M", "1", "1M", "-1", "512MB", "1.5G", "99999999999G"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        for (text, millis) in [
            ("1", 1000),
            ("1.5", 1500),
            ("0.25", 250),
            ("2.", 2000),
            ("0.01", 10),
        ] {
            assert_eq!(parse_cpus(text), Ok(millis), "{text}");
        }
        for bad in [
            "",
            "0",
            ".5x",
            "0.001",
            "-1",
            "1.2345",
            "2000",
            "99999999999",
        ] {
            assert!(parse_cpus(bad).is_err(), "{bad}");
        }
    }
}
