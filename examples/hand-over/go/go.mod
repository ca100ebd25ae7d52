module forebay.example/handover

go 1.21
