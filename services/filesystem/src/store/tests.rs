//! What the store promises.

use std::{fs, io::Write as _};

use pretty_assertions::assert_eq;

use super::*;

const MIB: u64 = 1024 * 1024;

struct Home {
    directory: tempfile::TempDir,
    store: Store,
}

impl Home {
    fn new(budget: u64) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let store = Store::open(&directory.path().join("before"), budget).expect("store");
        Self { directory, store }
    }

    /// The same directory as the next process finds it.
    fn reopen(&mut self, budget: u64) {
        self.store = Store::open(&self.directory.path().join("before"), budget).expect("store");
    }

    fn file(&self, content: &[u8]) -> File {
        let path = self.directory.path().join("file");
        fs::write(&path, content).expect("file");
        File::open(path).expect("file")
    }

    fn keep(&self, content: &[u8]) -> bool {
        let file = self.file(content);
        let kept = self
            .store
            .keep(&file, content.len() as u64, Sha256::of(content));
        kept.expect("kept")
    }

    fn told(&self, content: &[u8]) -> Result<Vec<u8>, Error> {
        let mut told = Vec::new();
        self.store.tell(&Sha256::of(content), &mut told)?;
        Ok(told)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path().join("before")).expect("directory");
        let name = |entry: io::Result<fs::DirEntry>| {
            let name = entry.expect("entry").file_name();
            name.into_string().expect("text")
        };
        entries.map(name).collect()
    }
}

/// Bytes that do not compress.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next)
        .flatten()
        .take(length)
        .collect()
}

#[test]
fn what_is_kept_is_told_as_it_was_also_by_the_next_process() {
    let mut home = Home::new(64 * MIB);
    let large = noise(1, 5 * 1024 * 1024 + 7);
    let contents = [&b""[..], b"text", b"\xff\x00\r\n", &large];
    for content in contents {
        assert!(home.keep(content));
    }
    assert_eq!(home.told(&large).expect("told"), large);
    home.reopen(64 * MIB);
    for content in contents {
        assert_eq!(home.told(content).expect("told"), content);
    }
    assert!(matches!(home.told(b"other"), Err(Error::Gone)));
}

#[test]
fn only_the_owner_reads_it() {
    let home = Home::new(MIB);
    assert!(home.keep(b"secret"));
    let folder = home.directory.path().join("before");
    let mode = |path: &Path| fs::metadata(path).expect("facts").permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join(&home.names()[0])), 0o600);
}

#[test]
fn equal_contents_are_kept_once_and_are_young_again() {
    let home = Home::new(16 * BLOCK);
    let contents: Vec<_> = (0..5)
        .map(|seed| noise(seed, 3 * BLOCK as usize - 100))
        .collect();
    for content in &contents[..4] {
        assert!(home.keep(content));
    }
    assert!(home.keep(&contents[0]), "wanted again");
    assert_eq!(home.names().len(), 4);
    assert!(home.keep(&contents[4]), "5 times 3 blocks");
    assert!(home.keep(b"x"), "and one");
    assert!(home.keep(b"y"), "and one too many");
    assert!(matches!(home.told(&contents[1]), Err(Error::Gone)));
    assert_eq!(home.told(&contents[0]).expect("told"), contents[0]);
}

#[test]
fn the_oldest_go_first_also_for_the_next_process() {
    let mut home = Home::new(16 * BLOCK);
    let contents: Vec<_> = (0..4)
        .map(|seed| noise(seed, 3 * BLOCK as usize - 100))
        .collect();
    for (at, content) in contents.iter().enumerate() {
        assert!(home.keep(content));
        let name = Sha256::of(content).to_string();
        let path = home.directory.path().join("before").join(name);
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000 - at as u64);
        let file = File::open(path).expect("image");
        file.set_modified(time).expect("time");
    }
    home.reopen(6 * BLOCK);
    assert!(home.store.has(&Sha256::of(&contents[0])));
    assert!(home.store.has(&Sha256::of(&contents[1])));
    assert!(!home.store.has(&Sha256::of(&contents[2])));
    assert_eq!(home.names().len(), 2);
    home.reopen(0);
    home.store.look_through();
    assert_eq!(home.names(), [""; 0], "with no budget nothing stays");
    assert!(!home.keep(b"x"));
}

#[test]
fn what_is_too_large_is_not_kept() {
    let home = Home::new(4 * MIB);
    assert!(home.keep(&noise(1, MIB as usize)));
    assert!(!home.keep(&noise(2, MIB as usize + 1)));
}

#[test]
fn a_file_that_is_not_at_its_revision_is_not_kept_and_leaves_nothing() {
    let home = Home::new(64 * MIB);
    for length in [10, 3 * MIB as usize] {
        let file = home.file(&noise(1, length));
        let kept = home.store.keep(&file, length as u64, Sha256::of(b"other"));
        assert!(matches!(kept, Err(Error::Changed)));
    }
    assert_eq!(home.names(), [""; 0]);
}

#[test]
fn an_image_that_does_not_hold_what_it_should_is_not_believed_and_goes() {
    for damage in ["cut", "flipped", "other", "empty"] {
        let home = Home::new(16 * MIB);
        let content = noise(3, 100_000);
        assert!(home.keep(&content));
        let path = home.directory.path().join("before").join(&home.names()[0]);
        let mut bytes = fs::read(&path).expect("image");
        match damage {
            "cut" => bytes.truncate(bytes.len() / 2),
            "flipped" => bytes[5000] ^= 1,
            "other" => bytes = zstd::bulk::compress(b"other", LEVEL).expect("frame"),
            _ => bytes.clear(),
        }
        fs::write(&path, bytes).expect("damaged");
        assert!(
            matches!(home.told(&content), Err(Error::Damaged)),
            "{damage}"
        );
        assert!(!home.store.has(&Sha256::of(&content)), "{damage}");
        assert!(home.keep(&content), "and can be kept anew");
        assert_eq!(home.told(&content).expect("told"), content);
    }
}

#[test]
fn images_that_others_removed_are_kept_anew() {
    let home = Home::new(MIB);
    assert!(home.keep(b"x"));
    fs::remove_file(home.directory.path().join("before").join(&home.names()[0])).expect("gone");
    assert!(home.keep(b"x"));
    assert_eq!(home.told(b"x").expect("told"), b"x");
}

#[test]
fn what_a_dead_process_left_is_swept_and_what_a_living_one_holds_is_not() {
    let mut home = Home::new(MIB);
    let folder = home.directory.path().join("before");
    let (dead, alive) = (ReceiptId::generate(), ReceiptId::generate());
    fs::write(folder.join(names::temporary(dead)), "half").expect("file");
    let mut held = File::create(folder.join(names::temporary(alive))).expect("file");
    held.write_all(b"half").expect("written");
    left_over::claim(&held).expect("claimed");
    home.reopen(MIB);
    home.store.look_through();
    assert_eq!(home.names(), [names::temporary(alive)]);
}

#[test]
fn many_images_are_made_durable_together() {
    let home = Home::new(64 * MIB);
    let contents: Vec<_> = (0..100).map(|at| format!("content {at}")).collect();
    let staged = contents.iter().map(|content| {
        let file = home.file(content.as_bytes());
        let staged = home
            .store
            .stage(&file, content.len() as u64, Sha256::of(content.as_bytes()));
        let Ok(Staged::New(mut image)) = staged else {
            panic!("a new image");
        };
        image.close();
        image
    });
    home.store.commit(staged.collect()).expect("durable");
    for content in &contents {
        assert_eq!(
            home.told(content.as_bytes()).expect("told"),
            content.as_bytes()
        );
    }
    assert_eq!(home.names().len(), 100);
}

#[test]
fn of_images_that_cannot_all_be_named_none_is_there() {
    let home = Home::new(MIB);
    let (first, second) = (b"first".as_slice(), b"second".as_slice());
    let stage = |content: &[u8]| {
        let file = home.file(content);
        let staged = home
            .store
            .stage(&file, content.len() as u64, Sha256::of(content));
        match staged.expect("staged") {
            Staged::New(image) => image,
            other @ (Staged::TooLarge | Staged::There) => panic!("{other:?}"),
        }
    };
    let images = vec![stage(first), stage(second)];
    // Something else stands where the second is to be.
    let taken = home
        .directory
        .path()
        .join("before")
        .join(Sha256::of(second).to_string());
    fs::create_dir(&taken).expect("a directory");
    let failed = home.store.commit(images);
    assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
    assert!(!home.store.has(&Sha256::of(first)));
    assert_eq!(
        home.names(),
        [Sha256::of(second).to_string()],
        "nothing else is left"
    );
    fs::remove_dir(&taken).expect("removed");
    assert!(home.keep(first) && home.keep(second));
    assert_eq!(home.told(first).expect("told"), first);
}
