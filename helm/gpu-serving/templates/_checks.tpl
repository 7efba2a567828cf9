{{/* Invalid combinations of values, refused with a sentence. */}}

{{- define "serving.checks" -}}
{{- $values := .Values -}}
{{- if and $values.gpuMemory $values.gpuCount -}}
{{- fail "gpucount and gpumemory should not be used at the same time.You can only choose one mode" -}}
{{- end -}}
{{- if not (or $values.gpuMemory $values.gpuCount $values.devices) -}}
{{- fail "set gpuMemory for a share of a GPU, or gpuCount for whole ones" -}}
{{- end -}}
{{- if and $values.gpuCore (not $values.gpuMemory) -}}
{{- fail "gpuCore is a part of a shared GPU: set it with gpuMemory; gpuCount gives all of a GPU" -}}
{{- end -}}
{{- if eq $values.server "custom" -}}
{{- if not $values.image -}}
{{- fail "server is custom, which has no image of its own: set image" -}}
{{- end -}}
{{- if and $values.gpuMemory (not $values.command) -}}
{{- fail "server is custom, whose start is not known: set command, so that it is started with its fraction" -}}
{{- end -}}
{{- else if not $values.command -}}
{{- if not (or $values.modelPath $values.modelConfigFile) -}}
{{- fail (printf "modelPath is empty: %s needs the path of its model" $values.server) -}}
{{- end -}}
{{- if and (not $values.modelName) (not $values.modelConfigFile) (ne $values.server "triton") -}}
{{- fail (printf "modelName is empty: %s serves its model under a name" $values.server) -}}
{{- end -}}
{{- end -}}
{{- if and $values.modelConfigFile (ne $values.server "tensorflow") -}}
{{- fail "modelConfigFile is an option of TensorFlow Serving: set modelPath" -}}
{{- end -}}
{{- range $name := list "loadModels" "backend" -}}
{{- if and (get $values $name) (ne $values.server "triton") -}}
{{- fail (printf "%s is an option of Triton, not of %s" $name $values.server) -}}
{{- end -}}
{{- end -}}
{{- if and $values.memoryFraction.modelMiB (or (ne $values.server "vllm") $values.command) -}}
{{- fail "memoryFraction.modelMiB sets the KV cache of vLLM: set server to vllm and leave command empty" -}}
{{- end -}}
{{- if and $values.backend (not $values.gpuCount) -}}
{{- fail "backend takes its part of a GPU's memory from the model repository: set gpuCount" -}}
{{- end -}}
{{- range $name, $count := $values.devices -}}
{{- if hasPrefix (printf "%s/" $values.resourceDomain) $name -}}
{{- fail (printf "devices is for resources of others: set gpuMemory, gpuCore or gpuCount for %s" $name) -}}
{{- end -}}
{{- end -}}
{{- range $name, $secret := $values.envsFromSecret -}}
{{- if hasKey $values.envs $name -}}
{{- fail (printf "envs and envsFromSecret both set %s: choose one" $name) -}}
{{- end -}}
{{- end -}}
{{- include "serving.portChecks" . -}}
{{- range $name := list "versionPolicy" "monitoringConfigFile" -}}
{{- if and (get $values $name) (ne $values.server "tensorflow") -}}
{{- fail (printf "%s is an option of TensorFlow Serving, not of %s" $name $values.server) -}}
{{- end -}}
{{- end -}}
{{- if and $values.versionPolicy $values.modelConfigFile -}}
{{- fail "versionPolicy is for the model of modelName: write it into the file of modelConfigFile" -}}
{{- end -}}
{{- if and (has (toString $values.strategy.maxSurge) (list "0" "0%")) (has (toString $values.strategy.maxUnavailable) (list "0" "0%")) -}}
{{- fail "strategy.maxSurge and strategy.maxUnavailable are both 0: no pod could ever be replaced" -}}
{{- end -}}
{{- if and $values.command (or $values.extraArgs $values.loadModels) -}}
{{- fail "command is in place of the server's own, so extraArgs and loadModels would not reach it: put them into command" -}}
{{- end -}}
{{- if $values.autoscaling.enabled -}}
{{- if gt (int $values.autoscaling.minReplicas) (int $values.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas is larger than autoscaling.maxReplicas" -}}
{{- end -}}
{{- range $values.autoscaling.metrics -}}
{{- $resource := default dict .resource -}}
{{- $name := toString $resource.name -}}
{{- if and (has $name (list "cpu" "memory")) (eq (dig "target" "type" "" $resource) "Utilization") (not (get $values $name)) -}}
{{- fail (printf "autoscaling goes by the utilization of %s, which is measured against a request: set %s" (eq $name "cpu" | ternary "CPU" $name) $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Ports that cannot be listened on together. A command of the user's may serve metrics where it likes. */}}
{{- define "serving.portChecks" -}}
{{- $server := include "serving.server" . | fromYaml -}}
{{- $grpc := int $server.grpc -}}
{{- $http := int $server.http -}}
{{- $metrics := int $server.metricsPort -}}
{{- if and $grpc (eq $grpc $http) -}}
{{- fail (printf "port and restApiPort are both %d: gRPC and HTTP need a port each" $grpc) -}}
{{- end -}}
{{- if and (has .Values.server (list "triton" "torchserve")) (not .Values.command) -}}
{{- if has $metrics (list $grpc $http) -}}
{{- fail (printf "%s has its metrics on a port of their own, and %d is that of gRPC or HTTP: set metrics.port, port or restApiPort" .Values.server $metrics) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.server "torchserve") (not .Values.command) -}}
{{- range $port := list 8081 7071 -}}
{{- if has $port (list $grpc $http $metrics) -}}
{{- fail (printf "TorchServe listens on port %d for its management: set another for port, restApiPort or metrics.port" $port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
