module aolog.invalid/gotool

go 1.21
