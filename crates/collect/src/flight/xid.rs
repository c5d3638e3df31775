//! Xids: errors of GPUs that the driver writes to the kernel's log.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
};

/// The most records of the log that are read in one round.
const MOST_RECORDS: usize = 64;
/// The longest text of an Xid that is kept.
const MOST_TEXT: usize = 200;

/// The kernel's log, from now on.
pub struct Xids(File);

impl Xids {
    /// Opens the log.
    pub fn open() -> io::Result<Self> {
        let mut log = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg")?;
        log.seek(SeekFrom::End(0))?;
        Ok(Self(log))
    }

    /// Returns the next Xid.
    pub fn next(&mut self) -> Option<String> {
        let mut record = [0; 8192];
        for _ in 0..MOST_RECORDS {
            match self.0.read(&mut record) {
                Ok(0) => return None,
                Ok(length) => {
                    if let Some(xid) = xid(&String::from_utf8_lossy(&record[..length])) {
                        return Some(xid);
                    }
                }
                // Records were overwritten before they were read: continue with the oldest.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => return None,
            }
        }
        None
    }
}

/// Returns the text of an Xid in a record `PRIORITY,SEQUENCE,TIME,FLAGS;TEXT`. Only the kernel's own records count: others
/// can be written by programs.
fn xid(record: &str) -> Option<String> {
    let (prefix, text) = record.split_once(';')?;
    let priority: u32 = prefix.split(',').next()?.parse().ok()?;
    let text = text.lines().next()?;
    let at = text.find("NVRM: Xid (")?;
    let of_kernel = priority >> 3 == 0;
    of_kernel.then(|| text[at + "NVRM: ".len()..].chars().take(MOST_TEXT).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that Xids are found in records of the kernel, and only there.
    #[test]
    fn only_the_kernel_reports_xids() {
        let text = "NVRM: Xid (PCI:0000:1b:00): 31, pid=77, name=python3, Ch 00000008, intr 00000000";
        let line = |priority: u32| format!("{priority},6842,123456789,-;{text}\n SUBSYSTEM=pci\n");
        assert_eq!(xid(&line(4)).as_deref(), Some(&text["NVRM: ".len()..]));
        assert_eq!(xid(&line(12)), None, "written by a program");
        assert_eq!(xid("4,1,2,-;NVRM: loading"), None);
        assert_eq!(xid("nonsense"), None);
    }
}
