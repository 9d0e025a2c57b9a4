//! What handles of files and directories believe after a failure, on the simulated machine.

use std::io;
use std::path::Path;
use std::sync::Arc;

use terrace_os::{Directory, File, Files, OpenHow};

use crate::{SimFiles, Survive};

fn made() -> (Arc<SimFiles>, Arc<File>) {
    let files = SimFiles::new();
    let file = files.open(Path::new("/f"), OpenHow::CreateNew).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    file.sync().unwrap();
    files.sync_directory(Path::new("/")).unwrap();
    (files, file)
}

fn found(files: &SimFiles) -> Vec<u8> {
    let file = files.crash(Survive::Nothing).open(Path::new("/f"), OpenHow::Read).unwrap();
    file.read_vec(0, file.len().unwrap() as usize).unwrap()
}

fn refuses_everything(file: &File, cause: &str) {
    let changes: [(&str, io::Result<()>); 7] = [
        ("write", file.write_all_at(b"x", 0)),
        ("try", file.try_write_all_at(b"x", 0)),
        ("last", file.try_write_last_at(b"x", 0)),
        ("sync", file.sync()),
        ("length", file.set_len(1)),
        ("space", file.preallocate(0, 1)),
        ("hole", file.punch(0, 1).map(drop)),
    ];
    for (what, done) in changes {
        let told = done.unwrap_err().to_string();
        assert!(told.contains(cause), "{what}: the first cause is named: {told}");
        assert!(told.contains("/f") && told.contains("open the database again"), "{told}");
    }
    assert_eq!(file.read_vec(0, 3).unwrap().len(), 3, "reads go on");
}

#[test]
fn after_a_failed_sync_nothing_is_written_or_believed() {
    let (files, file) = made();
    file.write_all_at(b"lost", 0).unwrap();
    files.fail_sync_after(1);
    let failed = file.sync().unwrap_err();
    assert!(failed.to_string().contains("simulated I/O error"), "{failed}");
    refuses_everything(&file, "sync failed (simulated I/O error: sync");
    assert_eq!(found(&files), b"before");
    // Another handle has not failed. What it writes counts.
    let again = files.open(Path::new("/f"), OpenHow::Write).unwrap();
    again.write_all_at(b"again!", 0).unwrap();
    again.sync().unwrap();
    assert_eq!(found(&files), b"again!");
}

#[test]
fn after_a_failed_write_of_what_a_sync_was_to_cover_nothing_is_believed() {
    let (files, file) = made();
    files.fail_write_after(1);
    file.write_all_at(b"lost", 0).unwrap_err();
    refuses_everything(&file, "write failed (simulated I/O error: write");
}

#[test]
fn bytes_that_nothing_refers_to_are_given_up_and_the_file_goes_on() {
    let (files, file) = made();
    for write in [File::try_write_all_at, File::try_write_last_at] {
        files.fail_write_after(1);
        write(&file, b"lost", 10).unwrap_err();
        assert!(!file.has_failed());
    }
    file.set_len(6).unwrap();
    file.write_all_at(b"after!", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(found(&files), b"after!");
}

/// Two threads sync at a time, and the device fails once: both must know.
#[test]
fn of_syncs_side_by_side_none_is_believed_after_the_one_that_failed() {
    for _ in 0..20 {
        let (files, file) = made();
        file.write_all_at(b"lost", 100).unwrap();
        files.fail_sync_after(1);
        let failed = std::thread::scope(|scope| {
            let syncs: Vec<_> = (0..4).map(|_| scope.spawn(|| file.sync().is_err())).collect();
            syncs.into_iter().map(|sync| sync.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(failed, [true; 4], "the first of them failed");
    }
}

#[test]
fn of_a_directory_no_later_sync_is_believed_after_a_failed_one() {
    let files = SimFiles::new();
    files.create_directory(Path::new("/db")).unwrap();
    let directory = Directory::at(Path::new("/db"));
    files.open(Path::new("/db/f"), OpenHow::CreateNew).unwrap();
    files.fail_sync_after(1);
    directory.sync(&*files).unwrap_err();
    let again = directory.sync(&*files).unwrap_err().to_string();
    assert!(again.contains("/db") && again.contains("simulated I/O error"), "{again}");
    Directory::at(Path::new("/db")).sync(&*files).unwrap();
}
