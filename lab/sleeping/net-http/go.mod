module sleeping

go 1.24
